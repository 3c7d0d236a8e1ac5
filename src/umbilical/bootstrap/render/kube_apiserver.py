"""kube-apiserver's side of the tunnel: the egress file, the operator's override that names it, and the flag and two
mounts for a given static pod.
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
            # Direct is also the default; written out to show that it is intended.
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
"""On the host and in the pod. It contains nothing else: kube-apiserver must not see the tunnel's keys."""
EGRESS_PATH: Final = posixpath.join(EGRESS_DIRECTORY, EGRESS_FILE)
# etcd rejects objects above 1.5 MiB; a longer file is not a manifest.
MAX_BYTES: Final = 1 << 20
# A pod has a dozen levels. Parsing time grows with the square of the depth.
MAX_DEPTH: Final = 100
_OPENING: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


def read_static_pod(content: bytes) -> dict[str, Any]:
    """Read the manifest. Raises RenderError: a kubelet would not run it as kube-apiserver."""
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
    """Return a copy that uses the tunnel. Raises RenderError: it has another egress file, or a mount conflicts."""
    changed = copy.deepcopy(pod)
    container = _container(changed)
    _add_flag(container)
    volumes = _entries(changed["spec"], "volumes", "name")
    for name, path, kind, read_only in (
        ("konnectivity-egress", EGRESS_DIRECTORY, "Directory", True),
        # Connecting to a socket needs no write access to its directory.
        ("konnectivity-socket", spec.socket_directory, "DirectoryOrCreate", True),
    ):
        volume = {"name": name, "hostPath": {"path": path, "type": kind}}
        _add_mount(container, volumes, volume, {"name": name, "mountPath": path, "readOnly": read_only})
    return changed


def _check_tokens(content: bytes) -> None:
    depth = 0
    for token in yaml.scan(content, yaml.SafeLoader):
        if isinstance(token, yaml.AliasToken):
            # Aliases multiply when written out, without end inside their own anchor.
            raise _refused("it uses YAML aliases")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            raise _refused(f"it is nested deeper than {MAX_DEPTH} levels")


def _container(pod: object) -> dict[str, Any]:
    if not isinstance(pod, dict) or (pod.get("apiVersion"), pod.get("kind")) != ("v1", "Pod"):
        raise _refused("it is not a v1 Pod")
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
            raise _conflict(f"it already has {flag}={value}")
    # After the existing flags, in `args` or `command`.
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
    """Return the list at a key, created if missing or null. Raises RenderError: an entry lacks one of these texts."""
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
    remedy = "give the kubelet's own file, usually /etc/kubernetes/manifests/kube-apiserver.yaml"
    return RenderError("UMB114", "the file is not a kube-apiserver manifest", why, remedy)


def _conflict(why: str) -> RenderError:
    remedy = "remove that from the manifest first, if nothing else needs it"
    return RenderError("UMB115", "the kube-apiserver manifest conflicts with the tunnel", why, remedy)
