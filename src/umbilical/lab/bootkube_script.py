"""A bootkube-like script and the libraries beside it, in our own words, for a lab's bootstrap.ign.

It has the frame, the stage protocol and the lines that a patch holds on to as installers of 4.18 write them; each
stage asks `podman` or `oc` for its work, for which `release_payload` stands in on the lab's bootstrap node.
"""

from typing import Final

_IMAGES: Final = {
    "CLUSTER_ETCD_OPERATOR_IMAGE": "cluster-etcd-operator",
    "KUBE_APISERVER_OPERATOR_IMAGE": "cluster-kube-apiserver-operator",
    "KUBE_CONTROLLER_MANAGER_OPERATOR_IMAGE": "cluster-kube-controller-manager-operator",
    "KUBE_SCHEDULER_OPERATOR_IMAGE": "cluster-kube-scheduler-operator",
    "MACHINE_CONFIG_OPERATOR_IMAGE": "machine-config-operator",
    "CLUSTER_BOOTSTRAP_IMAGE": "cluster-bootstrap",
    "ETCD_IMAGE": "etcd",
}

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

if [ ! -f openshift-manifests.done ]
then
    record_service_stage_start "openshift-manifests"
    cp openshift/* manifests/
    touch openshift-manifests.done
    record_service_stage_success
fi

VERSION=$(oc adm release info --version "${RELEASE_IMAGE_DIGEST}")
KUBERNETES_VERSION=$(oc adm release info --kubernetes "${RELEASE_IMAGE_DIGEST}")
"""

_CVO: Final = """
if [ ! -f cvo-bootstrap.done ]
then
    record_service_stage_start "cvo-bootstrap"
    echo "Rendering the cluster version operator's manifests"

    rm --recursive --force cvo-bootstrap
    bootkube_podman_run \\
        --name cvo-render \\
        --volume "$PWD:/assets:z" \\
        "${RELEASE_IMAGE_DIGEST}" \\
        render \\
        --asset-output-dir=/assets/cvo-bootstrap

    cp auth/kubeconfig-loopback /etc/kubernetes/kubeconfig
    cp cvo-bootstrap/manifests/* manifests/

    touch cvo-bootstrap.done
    record_service_stage_success
fi
"""

_OPERATOR: Final = """
if [ ! -f @NAME@-bootstrap.done ]
then
    record_service_stage_start "@NAME@-bootstrap"
    echo "Rendering @NAME@ manifests"

    rm --recursive --force @NAME@-bootstrap
    bootkube_podman_run \\
        --name @NAME@-render \\
        --volume "$PWD:/assets:z" \\
        "${@IMAGE@}" \\
        render \\
        --asset-output-dir=/assets/@NAME@-bootstrap \\
        --payload-version="$VERSION"

    @COPY@
    cp @NAME@-bootstrap/manifests/* manifests/

    touch @NAME@-bootstrap.done
    record_service_stage_success
fi
"""

_KUBE_APISERVER: Final = """
if [ ! -f kube-apiserver-bootstrap.done ]
then
    record_service_stage_start "kube-apiserver-bootstrap"
    echo "Rendering kube-apiserver manifests"

    rm --recursive --force kube-apiserver-bootstrap

    bootkube_podman_run  \\
        --name kube-apiserver-render \\
        --volume "$PWD:/assets:z" \\
        "${KUBE_APISERVER_OPERATOR_IMAGE}" \\
        /usr/bin/cluster-kube-apiserver-operator render \\
        --manifest-etcd-server-urls="${ETCD_ENDPOINTS}" \\
        --asset-input-dir=/assets/tls \\
        --asset-output-dir=/assets/kube-apiserver-bootstrap \\
        --config-output-file=/assets/kube-apiserver-bootstrap/config \\
        --payload-version=$VERSION \\
        --operand-kubernetes-version="${KUBERNETES_VERSION}"

    cp kube-apiserver-bootstrap/config /etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml
    cp kube-apiserver-bootstrap/bootstrap-manifests/* bootstrap-manifests/
    cp kube-apiserver-bootstrap/manifests/* manifests/

    touch kube-apiserver-bootstrap.done
    record_service_stage_success
fi
"""

_MACHINE_CONFIG: Final = """
if [ ! -f mco-bootstrap.done ]
then
    record_service_stage_start "mco-bootstrap"
    echo "Rendering the machine config operator's manifests"

    rm --recursive --force mco-bootstrap
    bootkube_podman_run \\
        --name mco-render \\
        --volume "$PWD:/assets:z" \\
        "${MACHINE_CONFIG_OPERATOR_IMAGE}" \\
        render \\
        --asset-output-dir=/assets/mco-bootstrap

    # What lies here is served to every machine that joins.
    mkdir --parents /etc/mcc/bootstrap
    cp manifests/* /etc/mcc/bootstrap/

    touch mco-bootstrap.done
    record_service_stage_success
fi
"""

_REST: Final = """
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

if [ "$BOOTSTRAP_INPLACE" = false ]
then
    record_service_stage_start "wait-for-ceo"
    bootkube_podman_run \\
        --name wait-for-ceo \\
        "${CLUSTER_ETCD_OPERATOR_IMAGE}" \\
        wait-for-ceo --kubeconfig-path=/assets/auth/kubeconfig
    record_service_stage_success
fi

# An old container runtime loses track of what it started when this unit ends too soon;
# these seconds let it settle.
touch /opt/openshift/.bootkube.done
"""

SERVICE_RECORD: Final = r"""#!/usr/bin/env bash
# Keeps a JSON list of what a service did and when: /var/log/openshift/NAME.json.
RECORD_NAME="${SYSTEMD_UNIT_NAME:-bootkube}"
RECORD_FILE="/var/log/openshift/${RECORD_NAME%.service}.json"
STAGE_NAME=""

mkdir --parents /var/log/openshift
[ -s "${RECORD_FILE}" ] || echo "[]" > "${RECORD_FILE}"

add_record_entry() {
    local entry
    entry=$(jq --null-input --compact-output \
        --arg timestamp "$(date --utc --iso-8601=seconds)" \
        --arg phase "$1" \
        --arg result "${2:-}" \
        --arg stage "${3:-}" \
        --arg errorMessage "${4:-}" \
        '{$timestamp, $phase, $result, $stage, $errorMessage} | with_entries(select(.value != ""))')
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
    add_record_entry "stage end" "$1" "${name}" "${2:-}"
}

record_service_stage_success() {
    end_record_stage "success"
}

record_service_stage_failure() {
    end_record_stage "failure" "${1:-}"
}

end_record() {
    local status=$?
    if [ -n "${STAGE_NAME}" ]
    then
        record_service_stage_failure "ended with ${status}"
    fi
    if [ "${status}" = 0 ]
    then
        add_record_entry "service end" "success"
    else
        add_record_entry "service end" "failure" "" "ended with ${status}"
    fi
}

add_record_entry "service start"
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
    images = "\n".join(f"{variable}=$(image_for {name})" for variable, name in _IMAGES.items())
    etcd_copy = "cp etcd-bootstrap/bootstrap-manifests/* /etc/kubernetes/manifests/"
    parts = (
        _HEAD.replace("@IMAGES@", images),
        _CVO,
        # etcd's pod goes straight to the kubelet: everything else waits for it.
        _operator("etcd", "CLUSTER_ETCD_OPERATOR_IMAGE", etcd_copy),
        _KUBE_APISERVER,
        _operator("kube-controller-manager", "KUBE_CONTROLLER_MANAGER_OPERATOR_IMAGE"),
        _operator("kube-scheduler", "KUBE_SCHEDULER_OPERATOR_IMAGE"),
        _MACHINE_CONFIG,
        _REST,
    )
    return "".join(parts)


def _operator(name: str, image: str, copy: str = "") -> str:
    copies = copy or f"cp {name}-bootstrap/bootstrap-manifests/* bootstrap-manifests/"
    return _OPERATOR.replace("@NAME@", name).replace("@IMAGE@", image).replace("@COPY@", copies)
