"""A bootkube-like script with its blocks nested as installers nest them, where the plain one has them side by side.

The last big stage begins in a function and ends where that is called; what only a separate bootstrap machine does is
the other branch of a question about bootstrap-in-place; stages about URLs begin and end in the library that is
sourced for them; and something follows the end.
"""

from typing import Final

from tests.support.bootkube_companions import VERIFY_URLS

_CLUSTER_BOOTSTRAP: Final = """\
echo "Starting cluster-bootstrap..."
run_cluster_bootstrap() {
\trecord_service_stage_start "cb-bootstrap"
\tbootkube_podman_run \\
        --name cluster-bootstrap \\
        "${CLUSTER_BOOTSTRAP_IMAGE}" \\
        start --tear-down-early=false --asset-dir=/assets --required-pods="${REQUIRED_PODS}"
}

if [ ! -f cb-bootstrap.done ]
then
    if run_cluster_bootstrap
    then
        touch cb-bootstrap.done
        record_service_stage_success
    else
        status=$?
        gather_cluster
        exit ${status}
    fi
fi

if [ "$BOOTSTRAP_INPLACE" = true ]
then
    . /usr/local/bin/bootstrap-in-place.sh "${CLUSTER_BOOTSTRAP_IMAGE}"
else
    if [ ! -f cvo-overrides.done ]
    then
        record_service_stage_start "cvo-overrides"
        until \\
            oc patch clusterversion version \\
                --kubeconfig=/opt/openshift/auth/kubeconfig
        do
            sleep 10
        done
        touch cvo-overrides.done
        record_service_stage_success
    fi

    if [ ! -z "$CLUSTER_ETCD_OPERATOR_IMAGE" ]
    then
        record_service_stage_start "wait-for-ceo"
        bootkube_podman_run \\
            --name wait-for-ceo \\
            "${CLUSTER_ETCD_OPERATOR_IMAGE}" \\
            wait-for-ceo
        record_service_stage_success
    fi
fi

if [ ! -f api-dns-check.done ]; then
  if check_url "api"; then
    touch api-dns-check.done
  fi
fi
"""
NESTED_VERIFY_URLS: Final = (
    VERIFY_URLS.replace("lookup_url() {", "function lookup_url() {")
    .replace("check_url() {", 'function check_url() {\n    record_service_stage_start "check-$1-url"')
    .replace('    echo "asking $1.cluster.example"\n', '    echo "asking $1"\n    record_service_stage_success\n')
)


def nested(script: str) -> str:
    """Nest a script of the corpus; what stands before the last big stage stays, and so do calls of a tunnel."""
    head, rest = script.split('echo "Starting cluster-bootstrap..."\n')
    cleanup = "konnectivity_cleanup\n\n" if "\nkonnectivity_cleanup\n" in rest else ""
    end = rest[rest.index("# An old container runtime") :]
    head = head.replace("\n. /usr/", "\n# shellcheck disable=SC1091\n. /usr/")
    return f'{head}{_CLUSTER_BOOTSTRAP}\n{cleanup}{end}echo "bootkube.service complete"\n'
