"""Bootkube-like scripts, one per release line: the lab's own parts, and what other releases have besides.

They run: every stage asks `podman` or `oc` for its work, keeps its `.done` marker and speaks the service record's
protocol. What differs between releases is what the real ones differ in: the stages, their order, the indentation
and the last flags of the render command.
"""

from dataclasses import dataclass
from typing import Final, Literal

from umbilical.lab import bootkube_script as lab

Native = Literal["none", "off", "on"]
RELEASES: Final = (
    "4.12", "4.13", "4.14", "4.15", "4.16", "4.17", "4.18", "4.19", "4.20", "4.21", "4.22", "4.23", "5.0", "5.1",
)  # fmt: skip
NATIVE_RELEASES: Final = ("4.23", "5.0", "5.1")
"""Installers that bring the tunnel themselves, switched on by a feature gate."""

_IMAGES: Final = {
    **lab.IMAGES,
    "CLUSTER_CONFIG_API_IMAGE": "cluster-config-api",
    "CLUSTER_CONFIG_OPERATOR_IMAGE": "cluster-config-operator",
    "INGRESS_OPERATOR_IMAGE": "cluster-ingress-operator",
    "NODE_TUNING_OPERATOR_IMAGE": "cluster-node-tuning-operator",
    "AUTHENTICATION_OPERATOR_IMAGE": "cluster-authentication-operator",
    "CLOUD_CREDENTIAL_OPERATOR_IMAGE": "cloud-credential-operator",
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
        lab.WAIT_FOR_ETCD,
        *(["konnectivity_manifests\n"] if native != "none" else []),
        lab.CLUSTER_BOOTSTRAP,
        lab.CVO_OVERRIDES,
        lab.WAIT_FOR_OPERATOR,
        *_url_checks(line),
        *(["konnectivity_cleanup\n"] if native != "none" else []),
        lab.END,
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
    head = lab.script_head(_IMAGES)
    if native != "none":
        library = "\n. /usr/local/bin/bootstrap-verify-api-server-urls.sh\n"
        head = _changed(head, library, f"{library}. /usr/local/bin/konnectivity.sh\n")
    if in_place:
        head = _changed(head, "BOOTSTRAP_INPLACE=false", "BOOTSTRAP_INPLACE=true")
    if line >= Release(4, 21):
        head = _changed(head, "--net=host --rm ", "--net=host --rm --log-driver=k8s-file ")
    return head


def _changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def _stage_text(name: str, line: Release, native: Native) -> str:
    match name:
        case "openshift-manifests":
            return lab.stage(name, lab.OPENSHIFT_COPIES)
        case "version":
            return _version(line)
        case "cvo-bootstrap":
            return lab.stage(name, _render("\t", name) + lab.CVO_COPIES)
        case "etcd-bootstrap":
            return lab.stage(name, _render("\t", name) + _copies("    ", name))
        case "mco-bootstrap":
            return lab.stage(name, _render("    ", name) + lab.MCO_COPIES)
        case "resolve-api-url" | "resolve-api-int-url":
            return _resolve(name)
        case "kube-scheduler-bootstrap" | "config-bootstrap":
            return lab.stage(name, _render("    ", name) + _copies("\t", name))
    return lab.stage(name, _render("\t\t", name) + _copies("\t", name))


def _render(indent: str, name: str) -> str:
    return lab.render_command(name, _RENDERERS[name], indent)


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


def _copies(indent: str, name: str) -> str:
    return f"\n{indent}cp {name}/manifests/* manifests/\n"


def _version(line: Release) -> str:
    return lab.VERSIONS if line >= Release(4, 18) else lab.VERSIONS.splitlines(keepends=True)[0]


def _kube_apiserver(line: Release, native: Native) -> str:
    indent = "    " if line < Release(4, 16) else "\t"
    copies = f"{indent}{lab.APISERVER_CONFIG_COPY}{_native_copy(indent, native)}"
    return lab.apiserver_stage(_render_flags(line, native), copies)


def _render_flags(line: Release, native: Native) -> list[str]:
    flags = ["--manifest-etcd-serving-ca=etcd-ca-bundle.crt", *lab.APISERVER_FLAGS]
    if line < Release(4, 14):
        flags.append('${ADDITIONAL_FLAGS[@]+"${ADDITIONAL_FLAGS[@]}"}')
    else:
        flags.append(lab.VERSION_FLAG)
    if line >= Release(4, 18):
        flags.append(lab.KUBERNETES_VERSION_FLAG)
    if native == "on":
        flags.append("--config-override-files=/assets/konnectivity-config-override.yaml")
    if native == "off":
        # Where the feature is built in and off, the template drops the flag and the backslash before it stays: the
        # command then ends in an empty line.
        flags[-1] += " \\\n"
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
