"""Bootkube-like scripts, one per release line, in our own words around the lines that a patcher holds on to.

They run: every stage asks `podman` or `oc` for its work, keeps its `.done` marker and speaks the service record's
protocol. What differs between releases is what the real ones differ in: the stages, their order, the indentation
and the last flags of the render command.
"""

from dataclasses import dataclass
from typing import Final, Literal

Native = Literal["none", "off", "on"]
RELEASES: Final = (
    "4.12", "4.13", "4.14", "4.15", "4.16", "4.17", "4.18", "4.19", "4.20", "4.21", "4.22", "4.23", "5.0", "5.1",
)  # fmt: skip
NATIVE_RELEASES: Final = ("4.23", "5.0", "5.1")
"""Installers that bring the tunnel themselves, switched on by a feature gate."""

_IMAGES: Final = {
    "MACHINE_CONFIG_OPERATOR_IMAGE": "machine-config-operator",
    "CLUSTER_CONFIG_API_IMAGE": "cluster-config-api",
    "CLUSTER_CONFIG_OPERATOR_IMAGE": "cluster-config-operator",
    "CLUSTER_ETCD_OPERATOR_IMAGE": "cluster-etcd-operator",
    "ETCD_IMAGE": "etcd",
    "KUBE_APISERVER_OPERATOR_IMAGE": "cluster-kube-apiserver-operator",
    "KUBE_CONTROLLER_MANAGER_OPERATOR_IMAGE": "cluster-kube-controller-manager-operator",
    "KUBE_SCHEDULER_OPERATOR_IMAGE": "cluster-kube-scheduler-operator",
    "INGRESS_OPERATOR_IMAGE": "cluster-ingress-operator",
    "NODE_TUNING_OPERATOR_IMAGE": "cluster-node-tuning-operator",
    "AUTHENTICATION_OPERATOR_IMAGE": "cluster-authentication-operator",
    "CLOUD_CREDENTIAL_OPERATOR_IMAGE": "cloud-credential-operator",
    "CLUSTER_BOOTSTRAP_IMAGE": "cluster-bootstrap",
    "HYPERKUBE_IMAGE": "hyperkube",
    "HAPROXY_IMAGE": "haproxy-router",
    "INFRA_IMAGE": "pod",
}


@dataclass(frozen=True, order=True)
class Release:
    """A release line, in the order of time: 4.9 < 4.12 < 5.0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> "Release":
        major, minor = text.split(".")
        return cls(int(major), int(minor))


def bootkube_script(release: str, *, native: Native = "none", in_place: bool = False) -> str:
    line = Release.parse(release)
    parts = [
        _head(line, native, in_place),
        *(_stage_text(name, line, native) for name in _stages_before_tunnel(line)),
        *(["konnectivity_setup\n"] if native != "none" else []),
        _kube_apiserver(line, native),
        *(_stage_text(name, line, native) for name in _stages_after_apiserver(line)),
        _wait_for_etcd(),
        *(["konnectivity_manifests\n"] if native != "none" else []),
        _cluster_bootstrap(),
        _overrides(),
        _wait_for_operator(),
        *_url_checks(line),
        *(["konnectivity_cleanup\n"] if native != "none" else []),
        _end(),
    ]
    return "\n".join(parts)


def _stages_before_tunnel(line: Release) -> list[str]:
    names = ["openshift-manifests", "version"]
    names += ["api-bootstrap"] if line >= Release(4, 15) else []
    names += ["auth-api-bootstrap"] if line >= Release(4, 19) else []
    # 4.12 and 4.13 render the configuration after etcd.
    late_config = line < Release(4, 14)
    names += [] if late_config else ["config-bootstrap"]
    names += ["cvo-bootstrap", "etcd-bootstrap"]
    return names + (["config-bootstrap"] if late_config else [])


def _stages_after_apiserver(line: Release) -> list[str]:
    names = ["kube-controller-manager-bootstrap", "kube-scheduler-bootstrap", "ingress-operator-bootstrap"]
    names += ["node-tuning-bootstrap"] if line >= Release(4, 13) else []
    names += ["mco-bootstrap"]
    names += ["resolve-api-url", "resolve-api-int-url"] if line >= Release(4, 16) else []
    return [*names, "cco-bootstrap"]


def _head(line: Release, native: Native, in_place: bool) -> str:
    log_driver = " --log-driver=k8s-file" if line >= Release(4, 21) else ""
    images = "\n".join(f"{variable}=$(image_for {name})" for variable, name in _IMAGES.items())
    konnectivity = ". /usr/local/bin/konnectivity.sh\n" if native != "none" else ""
    return f"""\
#!/usr/bin/env bash
# Brings a control plane up on this machine, stage by stage; whatever is done is not done again after a restart.
set -euoE pipefail

. /usr/local/bin/bootstrap-service-record.sh

. /usr/local/bin/release-image.sh

. /usr/local/bin/bootstrap-cluster-gather.sh

. /usr/local/bin/bootstrap-verify-api-server-urls.sh
{konnectivity}
mkdir --parents /etc/kubernetes/{{manifests,bootstrap-configs,bootstrap-manifests}}

BOOTSTRAP_INPLACE={"true" if in_place else "false"}
ETCD_ENDPOINTS=https://localhost:2379

bootkube_podman_run() {{
    podman run --quiet --net=host --rm{log_driver} "${{@}}"
}}

{images}

mkdir --parents ./{{bootstrap-manifests,manifests}}
"""


def _stage_text(name: str, line: Release, native: Native) -> str:
    match name:
        case "openshift-manifests":
            return _guarded(name, "    cp openshift/* manifests/\n")
        case "version":
            return _version(line)
        case "cvo-bootstrap":
            return _guarded(name, _render("\t", name) + _CVO_COPIES)
        case "etcd-bootstrap":
            return _guarded(name, _render("\t", name) + _copies("    ", name))
        case "mco-bootstrap":
            return _guarded(name, _render("    ", name) + _MCO_COPIES)
        case "resolve-api-url" | "resolve-api-int-url":
            return _resolve(name)
        case "kube-scheduler-bootstrap" | "config-bootstrap":
            return _guarded(name, _render("    ", name) + _copies("\t", name))
    return _guarded(name, _render("\t\t", name) + _copies("\t", name))


def _guarded(name: str, body: str) -> str:
    """A stage as they all are: skipped when its marker is there, between a start and an end on the record."""
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


def _render(indent: str, name: str) -> str:
    image = "${" + _RENDERERS[name] + "}"
    return f"""
{indent}rm --recursive --force {name}
{indent}bootkube_podman_run \\
{indent}\t--name {name.removesuffix("-bootstrap")}-render \\
{indent}\t--volume "$PWD:/assets:z" \\
{indent}\t"{image}" \\
{indent}\trender \\
{indent}\t--asset-output-dir=/assets/{name} \\
{indent}\t--payload-version="$VERSION"
"""


_RENDERERS: Final = {
    "api-bootstrap": "CLUSTER_CONFIG_API_IMAGE",
    "auth-api-bootstrap": "AUTHENTICATION_OPERATOR_IMAGE",
    "config-bootstrap": "CLUSTER_CONFIG_OPERATOR_IMAGE",
    "cvo-bootstrap": "RELEASE_IMAGE_DIGEST",
    "etcd-bootstrap": "CLUSTER_ETCD_OPERATOR_IMAGE",
    "kube-controller-manager-bootstrap": "KUBE_CONTROLLER_MANAGER_OPERATOR_IMAGE",
    "kube-scheduler-bootstrap": "KUBE_SCHEDULER_OPERATOR_IMAGE",
    "ingress-operator-bootstrap": "INGRESS_OPERATOR_IMAGE",
    "node-tuning-bootstrap": "NODE_TUNING_OPERATOR_IMAGE",
    "mco-bootstrap": "MACHINE_CONFIG_OPERATOR_IMAGE",
    "cco-bootstrap": "CLOUD_CREDENTIAL_OPERATOR_IMAGE",
}
_CVO_COPIES: Final = (
    "\n    cp auth/kubeconfig-loopback /etc/kubernetes/kubeconfig\n\tcp cvo-bootstrap/manifests/* manifests/\n"
)
_MCO_COPIES: Final = "\n\tmkdir --parents /etc/mcc/bootstrap\n\tcp manifests/* /etc/mcc/bootstrap/\n"


def _copies(indent: str, name: str) -> str:
    return f"\n{indent}cp {name}/manifests/* manifests/\n"


def _version(line: Release) -> str:
    kubernetes = 'KUBERNETES_VERSION=$(oc adm release info --kubernetes "${RELEASE_IMAGE_DIGEST}")\n'
    text = 'VERSION=$(oc adm release info --version "${RELEASE_IMAGE_DIGEST}")\n'
    return text + (kubernetes if line >= Release(4, 18) else "")


def _kube_apiserver(line: Release, native: Native) -> str:
    flags = "".join(f"\t\t{flag} \\\n" for flag in _render_flags(line, native))
    # Where the feature is built in and off, the template drops the flag and the backslash before it stays: the
    # command then ends in an empty line.
    flags = f"{flags}\n" if native == "off" else flags.removesuffix(" \\\n") + "\n"
    copy_indent = "    " if line < Release(4, 16) else "\t"
    return _guarded(
        "kube-apiserver-bootstrap",
        f"""
\trm --recursive --force kube-apiserver-bootstrap

\tbootkube_podman_run  \\
\t\t--name kube-apiserver-render \\
\t\t--volume "$PWD:/assets:z" \\
\t\t"${{KUBE_APISERVER_OPERATOR_IMAGE}}" \\
\t\t/usr/bin/cluster-kube-apiserver-operator render \\
{flags}
{copy_indent}cp kube-apiserver-bootstrap/config /etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml
{_native_copy(copy_indent, native)}\
\tcp kube-apiserver-bootstrap/bootstrap-manifests/* bootstrap-manifests/
\tcp kube-apiserver-bootstrap/manifests/* manifests/
""",
    )


def _render_flags(line: Release, native: Native) -> list[str]:
    flags = [
        "--manifest-etcd-serving-ca=etcd-ca-bundle.crt",
        '--manifest-etcd-server-urls="${ETCD_ENDPOINTS}"',
        "--asset-input-dir=/assets/tls",
        "--asset-output-dir=/assets/kube-apiserver-bootstrap",
        "--config-output-file=/assets/kube-apiserver-bootstrap/config",
    ]
    if line < Release(4, 14):
        flags.append('${ADDITIONAL_FLAGS[@]+"${ADDITIONAL_FLAGS[@]}"}')
    else:
        flags.append("--payload-version=$VERSION")
    if line >= Release(4, 18):
        flags.append('--operand-kubernetes-version="${KUBERNETES_VERSION}"')
    if native == "on":
        flags.append("--config-override-files=/assets/konnectivity-config-override.yaml")
    return flags


def _native_copy(indent: str, native: Native) -> str:
    target = "/etc/kubernetes/bootstrap-configs/egress-selector-config.yaml"
    line = f"{indent}cp /opt/openshift/egress-selector-config.yaml {target}\n"
    return {"none": "", "off": "\n", "on": line}[native]


def _resolve(name: str) -> str:
    host, marker = ("api", "api-dns-resolved") if name == "resolve-api-url" else ("api-int", "api-int-dns-resolved")
    return f"""\
if [ ! -f {marker}.done ]
then
    record_service_stage_start "{name}"
    if lookup_url "{host}"
    then
        record_service_stage_success
    else
        record_service_stage_failure
    fi
    touch {marker}.done
fi
"""


def _wait_for_etcd() -> str:
    return """\
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


def _cluster_bootstrap() -> str:
    return """\
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


def _overrides() -> str:
    return """\
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


def _wait_for_operator() -> str:
    return """\
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


def _url_checks(line: Release) -> list[str]:
    if line < Release(4, 16):
        return ["check_url api\ncheck_url api-int\n"]
    return [_url_check("api"), _url_check("api-int")]


def _url_check(host: str) -> str:
    return f"""\
if [ ! -f {host}-dns-check.done ]
then
    record_service_stage_start "check-{host}-url"
    if check_url "{host}"
    then
        record_service_stage_success
    else
        record_service_stage_failure
    fi
    touch {host}-dns-check.done
fi
"""


def _end() -> str:
    return """\
# An old container runtime loses track of what it started when this unit ends too soon;
# these seconds let it settle.
touch /opt/openshift/.bootkube.done
"""
