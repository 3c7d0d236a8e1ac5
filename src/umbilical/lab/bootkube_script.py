"""A script like bootkube.sh, with its libraries, for a lab's bootstrap.ign.

It has the structure, the stage protocol and the lines that a patch needs, as in installers of 4.18. Its stages run
`podman` and `oc`, for which the lab's bootstrap node has stand-ins.
"""

from collections.abc import Mapping, Sequence
from typing import Final

IMAGES: Final = {
    "CLUSTER_ETCD_OPERATOR_IMAGE": "cluster-etcd-operator",
    "KUBE_APISERVER_OPERATOR_IMAGE": "cluster-kube-apiserver-operator",
    "KUBE_CONTROLLER_MANAGER_OPERATOR_IMAGE": "cluster-kube-controller-manager-operator",
    "KUBE_SCHEDULER_OPERATOR_IMAGE": "cluster-kube-scheduler-operator",
    "MACHINE_CONFIG_OPERATOR_IMAGE": "machine-config-operator",
    "CLUSTER_BOOTSTRAP_IMAGE": "cluster-bootstrap",
    "ETCD_IMAGE": "etcd",
}
"""Variable of the script -> name in the release payload."""

_HEAD: Final = """\
#!/usr/bin/env bash
# Brings a control plane up on this machine, stage by stage; whatever is done is not done again after a restart.
set -euoE pipefail

. /usr/local/bin/bootstrap-service-record.sh

. /usr/local/bin/release-image.sh

. /usr/local/bin/bootstrap-cluster-gather.sh

. /usr/local/bin/bootstrap-verify-api-server-urls.sh

mkdir --parents /etc/kubernetes/{manifests,bootstrap-configs,bootstrap-manifests}

BOOTSTRAP_INPLACE=false
ETCD_ENDPOINTS=https://localhost:2379

bootkube_podman_run() {
    podman run --quiet --net=host --rm "${@}"
}

@IMAGES@

mkdir --parents ./{bootstrap-manifests,manifests}
"""

VERSIONS: Final = """\
VERSION=$(oc adm release info --version "${RELEASE_IMAGE_DIGEST}")
KUBERNETES_VERSION=$(oc adm release info --kubernetes "${RELEASE_IMAGE_DIGEST}")
"""
OPENSHIFT_COPIES: Final = "    cp openshift/* manifests/\n"
CVO_COPIES: Final = (
    "\n    cp auth/kubeconfig-loopback /etc/kubernetes/kubeconfig\n\tcp cvo-bootstrap/manifests/* manifests/\n"
)
# These files are served to every machine that joins.
MCO_COPIES: Final = "\n\tmkdir --parents /etc/mcc/bootstrap\n\tcp manifests/* /etc/mcc/bootstrap/\n"
# etcd's pod is given to the kubelet at once, since everything else needs it.
_ETCD_COPIES: Final = """
\tcp etcd-bootstrap/bootstrap-manifests/* /etc/kubernetes/manifests/
\tcp etcd-bootstrap/manifests/* manifests/
"""

APISERVER_FLAGS: Final = (
    '--manifest-etcd-server-urls="${ETCD_ENDPOINTS}"',
    "--asset-input-dir=/assets/tls",
    "--asset-output-dir=/assets/kube-apiserver-bootstrap",
    "--config-output-file=/assets/kube-apiserver-bootstrap/config",
)
VERSION_FLAG: Final = "--payload-version=$VERSION"
KUBERNETES_VERSION_FLAG: Final = '--operand-kubernetes-version="${KUBERNETES_VERSION}"'
APISERVER_CONFIG_COPY: Final = (
    "cp kube-apiserver-bootstrap/config /etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml\n"
)

WAIT_FOR_ETCD: Final = """\
if [ ! -f stop-etcd.done ]
then
    record_service_stage_start "wait-for-etcd"
    until bootkube_podman_run \\
        --name etcdctl \\
        "${ETCD_IMAGE}" \\
        etcdctl --endpoints="${ETCD_ENDPOINTS}" endpoint health
    do
        echo "etcd has no quorum yet, asking again"
        sleep 5
    done
    record_service_stage_success
fi
"""
CLUSTER_BOOTSTRAP: Final = """\
REQUIRED_PODS="openshift-kube-apiserver/kube-apiserver,openshift-kube-scheduler/openshift-kube-scheduler"
if [ "$BOOTSTRAP_INPLACE" = true ]
then
    REQUIRED_PODS=""
fi

echo "Starting cluster-bootstrap..."
if [ ! -f cb-bootstrap.done ]
then
    record_service_stage_start "cb-bootstrap"

    bootkube_podman_run \\
        --name cluster-bootstrap \\
        --volume "$PWD:/assets:z" \\
        --volume /etc/kubernetes:/etc/kubernetes:z \\
        "${CLUSTER_BOOTSTRAP_IMAGE}" \\
        start --tear-down-early=false --asset-dir=/assets --required-pods="${REQUIRED_PODS}"

    touch cb-bootstrap.done
    record_service_stage_success
fi
"""
CVO_OVERRIDES: Final = """\
if [ "$BOOTSTRAP_INPLACE" = false ] && [ ! -f cvo-overrides.done ]
then
    record_service_stage_start "cvo-overrides"
    until oc patch clusterversion version --kubeconfig=/opt/openshift/auth/kubeconfig --type=merge --patch "{}"
    do
        sleep 10
    done
    touch cvo-overrides.done
    record_service_stage_success
fi
"""
WAIT_FOR_OPERATOR: Final = """\
if [ "$BOOTSTRAP_INPLACE" = false ]
then
    record_service_stage_start "wait-for-ceo"
\tbootkube_podman_run \\
\t\t--name wait-for-ceo \\
\t\t"${CLUSTER_ETCD_OPERATOR_IMAGE}" \\
\t\twait-for-ceo --kubeconfig-path=/assets/auth/kubeconfig
    record_service_stage_success
fi
"""
END: Final = """\
# An old container runtime loses track of what it started when this unit ends too soon;
# these seconds let it settle.
touch /opt/openshift/.bootkube.done
"""

# In a trap bash restarts the line count; function and file are right.
SERVICE_RECORD: Final = r"""#!/usr/bin/env bash
# Keeps a JSON list of what a service did and when: /var/log/openshift/NAME.json.
RECORD_NAME="${SYSTEMD_UNIT_NAME:-bootkube}"
RECORD_FILE="/var/log/openshift/${RECORD_NAME%.service}.json"
STAGE_NAME=""
ERROR_LINE=""

mkdir --parents /var/log/openshift
[ -s "${RECORD_FILE}" ] || echo "[]" > "${RECORD_FILE}"

add_record_entry() {
    local entry
    entry=$(jq --null-input --compact-output \
        --arg timestamp "$(date --utc --iso-8601=seconds)" \
        --arg phase "$1" \
        --arg result "${2:-}" \
        --arg stage "${3:-}" \
        --arg errorLine "${4:-}" \
        --arg errorMessage "${5:-}" \
        '{$timestamp, $phase, $result, $stage, $errorLine, $errorMessage} | with_entries(select(.value != ""))')
    jq --argjson entry "${entry}" '. + [$entry]' "${RECORD_FILE}" > "${RECORD_FILE}.new"
    mv "${RECORD_FILE}.new" "${RECORD_FILE}"
}

record_service_stage_start() {
    if [ -n "${STAGE_NAME}" ]
    then
        echo "stage $1 cannot begin inside stage ${STAGE_NAME}"
        exit 1
    fi
    STAGE_NAME="$1"
    add_record_entry "stage start" "" "${STAGE_NAME}"
}

end_record_stage() {
    local name="${STAGE_NAME}"
    STAGE_NAME=""
    add_record_entry "stage end" "$1" "${name}" "${2:-}" "${3:-}"
}

record_service_stage_success() {
    end_record_stage "success"
}

record_service_stage_failure() {
    end_record_stage "failure" "$@"
}

end_record() {
    local status=$?
    trap - ERR
    if [ -n "${STAGE_NAME}" ]
    then
        record_service_stage_failure "${ERROR_LINE}" "ended with ${status}"
    fi
    if [ "${status}" = 0 ]
    then
        add_record_entry "service end" "success"
    else
        add_record_entry "service end" "failure" "" "${ERROR_LINE}" "ended with ${status}"
    fi
}

add_record_entry "service start"
trap 'ERROR_LINE="1 ${FUNCNAME[0]:-main} ${BASH_SOURCE[0]}"' ERR
trap end_record EXIT
"""

RELEASE_IMAGE: Final = r"""#!/usr/bin/env bash
# Knows which image of the release payload bears a name.
RELEASE_IMAGE_DIGEST="localhost/release@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

image_for() {
    podman run --quiet --rm --net=none "${RELEASE_IMAGE_DIGEST}" image "$1"
}
"""

CLUSTER_GATHER: Final = r"""#!/usr/bin/env bash
# Collects what a failed installation leaves behind.
gather_cluster() {
    oc get nodes --kubeconfig=/opt/openshift/auth/kubeconfig
}
"""

VERIFY_URLS: Final = r"""#!/usr/bin/env bash
# Asks whether the API's names resolve and answer; a failure is noted and stops nothing.
check_url() {
    oc get --raw=/readyz --kubeconfig=/opt/openshift/auth/kubeconfig
}
"""

BOOTKUBE_UNIT: Final = """\
[Unit]
Description=Bring a control plane up
Wants=kubelet.service
After=kubelet.service
ConditionPathExists=!/opt/openshift/.bootkube.done

[Service]
WorkingDirectory=/opt/openshift
ExecStart=/usr/local/bin/bootkube.sh
Restart=on-failure
RestartSec=5s
"""

KUBELET_UNIT: Final = """\
[Unit]
Description=Run the static pods of this machine

[Service]
ExecStart=/usr/bin/kubelet --pod-manifest-path=/etc/kubernetes/manifests

[Install]
WantedBy=multi-user.target
"""


def bootkube_script() -> str:
    flags = (*APISERVER_FLAGS, VERSION_FLAG, KUBERNETES_VERSION_FLAG)
    parts = (
        script_head(IMAGES),
        stage("openshift-manifests", OPENSHIFT_COPIES),
        VERSIONS,
        _rendered("cvo-bootstrap", "RELEASE_IMAGE_DIGEST", CVO_COPIES),
        _rendered("etcd-bootstrap", "CLUSTER_ETCD_OPERATOR_IMAGE", _ETCD_COPIES),
        apiserver_stage(flags, f"\t{APISERVER_CONFIG_COPY}"),
        _operator("kube-controller-manager-bootstrap", "KUBE_CONTROLLER_MANAGER_OPERATOR_IMAGE"),
        _operator("kube-scheduler-bootstrap", "KUBE_SCHEDULER_OPERATOR_IMAGE"),
        _rendered("mco-bootstrap", "MACHINE_CONFIG_OPERATOR_IMAGE", MCO_COPIES),
        WAIT_FOR_ETCD,
        CLUSTER_BOOTSTRAP,
        CVO_OVERRIDES,
        WAIT_FOR_OPERATOR,
        END,
    )
    return "\n".join(parts)


def script_head(images: Mapping[str, str]) -> str:
    lines = "\n".join(f"{variable}=$(image_for {name})" for variable, name in images.items())
    return _HEAD.replace("@IMAGES@", lines)


def stage(name: str, body: str) -> str:
    """Return a stage: skipped if its marker file exists, with start and end in the record."""
    return f"""\
if [ ! -f {name}.done ]
then
    record_service_stage_start "{name}"
\techo "Stage {name} begins"
{body}
\ttouch {name}.done
    record_service_stage_success
fi
"""


def render_command(name: str, image: str, indent: str = "\t") -> str:
    """Return a render call of an image variable; the indentation differs as in installers."""
    return f"""
{indent}rm --recursive --force {name}
{indent}bootkube_podman_run \\
{indent}\t--name {name.removesuffix("-bootstrap")}-render \\
{indent}\t--volume "$PWD:/assets:z" \\
{indent}\t"${{{image}}}" \\
{indent}\trender \\
{indent}\t--asset-output-dir=/assets/{name} \\
{indent}\t--payload-version="$VERSION"
"""


def apiserver_stage(flags: Sequence[str], config_copies: str) -> str:
    flag_lines = " \\\n".join(f"\t\t{flag}" for flag in flags)
    return stage(
        "kube-apiserver-bootstrap",
        f"""
\trm --recursive --force kube-apiserver-bootstrap

\tbootkube_podman_run  \\
\t\t--name kube-apiserver-render \\
\t\t--volume "$PWD:/assets:z" \\
\t\t"${{KUBE_APISERVER_OPERATOR_IMAGE}}" \\
\t\t/usr/bin/cluster-kube-apiserver-operator render \\
{flag_lines}

{config_copies}{_pod_copies("kube-apiserver-bootstrap")}""",
    )


def _rendered(name: str, image: str, copies: str) -> str:
    return stage(name, render_command(name, image) + copies)


def _operator(name: str, image: str) -> str:
    return _rendered(name, image, f"\n{_pod_copies(name)}")


def _pod_copies(name: str) -> str:
    return f"\tcp {name}/bootstrap-manifests/* bootstrap-manifests/\n\tcp {name}/manifests/* manifests/\n"
