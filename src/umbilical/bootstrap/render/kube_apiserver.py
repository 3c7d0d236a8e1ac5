"""kube-apiserver's side of the tunnel: the egress file, the operator's override that leads to it, and a static pod that
is given as a file, with the flag and the two mounts that it needs.
"""

import copy
import posixpath
from typing import Any, Final

import yaml

from umbilical.bootstrap.names import EGRESS_FILE
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_IN_POD, TunnelSpec
from umbilical.fault import RenderError
from umbilical.manifests.control_plane_pods import KUBE_APISERVER


def egress_selector(spec: TunnelSpec) -> dict[str, Any]:
    tunnel = {
        "proxyProtocol": spec.mode.proxy_protocol,
        "transport": {"uds": {"udsName": spec.socket_in_kube_apiserver}},
    }
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {"name": "cluster", "connection": tunnel},
            # Not left out: what is not named is Direct today, and here it is written that this is meant.
            {"name": "controlplane", "connection": {"proxyProtocol": "Direct"}},
            {"name": "etcd", "connection": {"proxyProtocol": "Direct"}},
        ],
    }


EGRESS_FLAG: Final = "egress-selector-config-file"
EGRESS_IN_POD: Final = posixpath.join(BOOTSTRAP_CONFIGS_IN_POD, EGRESS_FILE)


def kube_apiserver_override() -> dict[str, Any]:
    return {
        "apiVersion": "kubecontrolplane.config.openshift.io/v1",
        "kind": "KubeAPIServerConfig",
        "apiServerArguments": {EGRESS_FLAG: [EGRESS_IN_POD]},
    }


EGRESS_DIRECTORY: Final = "/etc/kubernetes/egress-selector"
"""On the host and in the pod. Nothing else lies in it, so kube-apiserver sees no keys of the tunnel's."""
EGRESS_PATH: Final = posixpath.join(EGRESS_DIRECTORY, EGRESS_FILE)
# etcd takes no object above 1.5 MiB; a manifest longer than that is something else.
MAX_BYTES: Final = 1 << 20
# A pod has a dozen. Parsing takes the square of the depth.
MAX_DEPTH: Final = 100
_OPENING: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


def read_static_pod(content: bytes) -> dict[str, Any]:
    """Read the one manifest. Raises RenderError: it is not one that a kubelet would run as kube-apiserver."""
    if len(content) > MAX_BYTES:
        raise _refused(f"it has {len(content)} bytes")
    try:
        _check_tokens(content)
        pod = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refused(f"it is not one YAML document: {_first_line(error)}") from None
    _container(pod)
    return dict(pod)


def with_egress_selector(pod: dict[str, Any], spec: TunnelSpec) -> dict[str, Any]:
    """Return a copy that asks the tunnel. Raises RenderError: another egress file, or our mount's place is taken."""
    changed = copy.deepcopy(pod)
    container = _container(changed)
    _add_flag(container)
    volumes = _entries(changed["spec"], "volumes", "name")
    for name, path, kind, read_only in (
        ("konnectivity-egress", EGRESS_DIRECTORY, "Directory", True),
        # Writing is not needed to connect to a socket.
        ("konnectivity-socket", spec.socket_directory, "DirectoryOrCreate", True),
    ):
        volume = {"name": name, "hostPath": {"path": path, "type": kind}}
        _add_mount(container, volumes, volume, {"name": name, "mountPath": path, "readOnly": read_only})
    return changed


def _check_tokens(content: bytes) -> None:
    depth = 0
    for token in yaml.scan(content, yaml.SafeLoader):
        if isinstance(token, yaml.AliasToken):
            # They multiply on the way out, without end if one stands inside its own anchor.
            raise _refused("it uses YAML aliases")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            raise _refused(f"it is nested deeper than {MAX_DEPTH} levels")


def _container(pod: object) -> dict[str, Any]:
    if not isinstance(pod, dict) or (pod.get("apiVersion"), pod.get("kind")) != ("v1", "Pod"):
        raise _refused("it is no v1 Pod")
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for container in containers if isinstance(containers, list) else []:
        if isinstance(container, dict) and _runs_kube_apiserver(container):
            return container
    raise _refused("none of its containers runs kube-apiserver")


def _runs_kube_apiserver(container: dict[str, Any]) -> bool:
    return KUBE_APISERVER in (posixpath.basename(word) for word in _words(container) if not word.startswith("-"))


def _words(container: dict[str, Any]) -> list[str]:
    parts = [container.get(key) or [] for key in ("command", "args")]
    if not all(isinstance(part, list) and all(isinstance(word, str) for word in part) for part in parts):
        return []
    return [word for part in parts for word in part]


def _add_flag(container: dict[str, Any]) -> None:
    words = _words(container)
    flag = f"--{EGRESS_FLAG}"
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == flag:
            value = value or (words[index + 1] if index + 1 < len(words) else "")
            if value == EGRESS_PATH:
                return
            raise _conflict(f"it has {flag}={value} already")
    # Behind the flags that are there, wherever those are.
    container["args" if container.get("args") else "command"].append(f"{flag}={EGRESS_PATH}")


def _add_mount(
    container: dict[str, Any], volumes: list[dict[str, Any]], volume: dict[str, Any], mount: dict[str, Any]
) -> None:
    mounts = _entries(container, "volumeMounts", "name", "mountPath")
    for known in mounts:
        if posixpath.normpath(known["mountPath"]) == mount["mountPath"]:
            if _host_path(volumes, known["name"]) == volume["hostPath"]["path"]:
                return
            raise _conflict(f"something else is mounted at {mount['mountPath']}")
    if any(known["name"] == volume["name"] for known in volumes):
        raise _conflict(f"it has another volume named {volume['name']}")
    volumes.append(volume)
    mounts.append(mount)


def _host_path(volumes: list[dict[str, Any]], name: str) -> str | None:
    for volume in volumes:
        if volume["name"] == name and isinstance(volume.get("hostPath"), dict):
            return posixpath.normpath(str(volume["hostPath"].get("path", "")))
    return None


def _entries(parent: dict[str, Any], key: str, *texts: str) -> list[dict[str, Any]]:
    """Take a list that may not be there yet, null included; each entry has these texts."""
    entries = parent[key] if parent.get(key) is not None else []
    if not isinstance(entries, list) or not all(_has_texts(entry, texts) for entry in entries):
        raise _refused(f"its {key} cannot be read")
    parent[key] = entries
    return entries


def _has_texts(entry: object, keys: tuple[str, ...]) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in keys)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _refused(why: str) -> RenderError:
    remedy = "give the kubelet's own file, most often /etc/kubernetes/manifests/kube-apiserver.yaml"
    return RenderError("UMB114", "the kube-apiserver manifest cannot be used", why, remedy)


def _conflict(why: str) -> RenderError:
    remedy = "take that out of the manifest first, if nothing else needs it"
    return RenderError("UMB115", "the kube-apiserver manifest contradicts the tunnel", why, remedy)
