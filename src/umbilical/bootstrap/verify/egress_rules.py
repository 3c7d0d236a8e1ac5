"""Checks C1 to C4: kube-apiserver's side of the tunnel; both ends use the same socket and protocol."""

import posixpath
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_IN_POD, BOOTSTRAP_CONFIGS_ON_HOST, Mode
from umbilical.bootstrap.verify.documents import dig, is_within, mappings, shown, unexpected_keys
from umbilical.bootstrap.verify.facts import BootstrapCheck, BootstrapFacts, bootkube, files, rule, tunnel

SELECTIONS: Final = ("cluster", "controlplane", "etcd")
EGRESS_FLAG: Final = "egress-selector-config-file"
# The first plan's key in the override. The operator merges it; kube-apiserver's configuration has no such field.
IGNORED_KEY: Final = "egressSelectorConfiguration"
_EGRESS_KIND: Final = ("apiserver.k8s.io/v1beta1", "EgressSelectorConfiguration")
_OVERRIDE_KIND: Final = ("kubecontrolplane.config.openshift.io/v1", "KubeAPIServerConfig")
_FIX: Final = "patch the installer's original file again: umbilical bootstrap patch FILE"


def connections(facts: BootstrapFacts) -> dict[str, Any]:
    """Return the egress selector's connections by name; the first of duplicates."""
    found: dict[str, Any] = {}
    value = facts.egress.value
    for selection in mappings(dig(value, "egressSelections") or dig(value, IGNORED_KEY, "egressSelections")):
        name = selection.get("name")
        if isinstance(name, str):
            found.setdefault(name, selection.get("connection"))
    return found


def socket_in_kube_apiserver(facts: BootstrapFacts) -> str | None:
    path = dig(connections(facts).get("cluster"), "transport", "uds", "udsName")
    return path if isinstance(path, str) else None


def copied_egress_file(facts: BootstrapFacts) -> str | None:
    """Return the target of bootkube.sh's copy of the egress selector."""
    commands = facts.bootkube.main if facts.bootkube else ()
    copies = [command.words for command in commands if command.words[:1] == ("cp",) and len(command.words) >= 3]
    return next((words[-1] for words in copies if words[-2] == facts.names.egress), None)


def _egress(facts: BootstrapFacts) -> Iterator[str]:
    value = facts.egress.value
    if not isinstance(value, dict):
        yield facts.egress.fault or f"it is {shown(value)}"
        return
    if (value.get("apiVersion"), value.get("kind")) != _EGRESS_KIND:
        yield f"it is {shown(value.get('apiVersion'))} {shown(value.get('kind'))}, not {' '.join(_EGRESS_KIND)}"
    yield from (f"unknown key {key}" for key in unexpected_keys(value, ("apiVersion", "kind", "egressSelections")))
    selections = value.get("egressSelections")
    names = [selection.get("name") for selection in mappings(selections)]
    is_whole = isinstance(selections, list) and len(names) == len(selections)
    if not is_whole or sorted(map(shown, names)) != sorted(map(shown, SELECTIONS)):
        yield f"it selects {', '.join(map(shown, names)) or 'nothing'}, not each of {', '.join(SELECTIONS)} once"
    for selection in mappings(selections):
        yield from _selection_faults(selection, facts.found_mode)


def _selection_faults(selection: dict[Any, Any], mode: Mode) -> Iterator[str]:
    name, connection = selection.get("name"), selection.get("connection")
    yield from (f"{shown(name)}: unknown key {key}" for key in unexpected_keys(selection, ("name", "connection")))
    if not isinstance(connection, dict):
        yield f"{shown(name)} has no connection"
        return
    wanted = mode.proxy_protocol if name == "cluster" else "Direct"
    allowed = ("proxyProtocol", "transport") if name == "cluster" else ("proxyProtocol",)
    yield from (f"{shown(name)}: unexpected key {key}" for key in unexpected_keys(connection, allowed))
    if connection.get("proxyProtocol") != wanted:
        yield f"{shown(name)} has proxyProtocol {shown(connection.get('proxyProtocol'))}, not {wanted}"
    if name == "cluster":
        yield from _transport_faults(connection.get("transport"))


def _transport_faults(transport: Any) -> Iterator[str]:
    uds = dig(transport, "uds")
    if not isinstance(transport, dict) or list(transport) != ["uds"] or not isinstance(uds, dict):
        yield "the transport of cluster is not exactly uds"
    elif list(uds) != ["udsName"] or not isinstance(uds["udsName"], str) or not uds["udsName"].startswith("/"):
        yield f"uds of cluster is not only udsName with an absolute path: {shown(uds.get('udsName'))}"


def _override(facts: BootstrapFacts) -> Iterator[str]:
    value = facts.override.value
    if not isinstance(value, dict):
        yield facts.override.fault or f"it is {shown(value)}"
        return
    if (value.get("apiVersion"), value.get("kind")) not in (_OVERRIDE_KIND, (None, None)):
        yield f"it is {shown(value.get('apiVersion'))} {shown(value.get('kind'))}, not {' '.join(_OVERRIDE_KIND)}"
    if IGNORED_KEY in value:
        yield f"kube-apiserver ignores the key {IGNORED_KEY}: only the argument {EGRESS_FLAG} makes it use a tunnel"
    known = ("apiVersion", "kind", "apiServerArguments", IGNORED_KEY)
    yield from (f"unknown key {key}" for key in unexpected_keys(value, known))
    arguments = value.get("apiServerArguments")
    if not isinstance(arguments, dict) or list(arguments) != [EGRESS_FLAG]:
        yield f"apiServerArguments is not exactly {EGRESS_FLAG}"
        return
    paths = arguments[EGRESS_FLAG]
    if not isinstance(paths, list) or len(paths) != 1 or not isinstance(paths[0], str):
        yield f"{EGRESS_FLAG} is {shown(paths)}, not a list of one path"
        return
    yield from _egress_path_faults(facts, paths[0])
    if "{{" in (facts.text(facts.names.override) or ""):
        yield "it contains {{, which the operator's template engine would evaluate"


def _egress_path_faults(facts: BootstrapFacts, path: str) -> Iterator[str]:
    if posixpath.dirname(path) != BOOTSTRAP_CONFIGS_IN_POD:
        yield f"{EGRESS_FLAG} is {shown(path)}; kube-apiserver's pod sees the file in {BOOTSTRAP_CONFIGS_IN_POD}"
    copied = copied_egress_file(facts)
    if copied is not None and posixpath.basename(copied) != posixpath.basename(path):
        yield f"bootkube.sh copies the file as {posixpath.basename(copied)}, the flag names {posixpath.basename(path)}"


def _socket(facts: BootstrapFacts) -> Iterator[str]:
    inside = socket_in_kube_apiserver(facts)
    served = facts.server.flags.values.get("--uds-name", "")
    if inside is None or not is_within(inside, BOOTSTRAP_CONFIGS_IN_POD) or _has_dots(inside):
        yield f"the socket {shown(inside)} is not in {BOOTSTRAP_CONFIGS_IN_POD}, the mount in kube-apiserver's pod"
        return
    mount = facts.server.mount_of(served)
    on_host = mount.on_host(served) if mount and not _has_dots(served) else None
    if mount is None or on_host is None:
        yield f"--uds-name={served} is not in a hostPath of the server's pod"
        return
    if mount.is_read_only:
        yield f"the server's mount {mount.path} is read-only"
    wanted = posixpath.join(BOOTSTRAP_CONFIGS_ON_HOST, posixpath.relpath(inside, BOOTSTRAP_CONFIGS_IN_POD))
    if on_host != wanted:
        yield f"the server listens on {on_host} of the host, kube-apiserver dials {wanted}"
    yield from _host_type_faults(mount.host_path, mount.host_type)


def _has_dots(path: str) -> bool:
    return any(part in (".", "..") for part in path.split("/"))


def _host_type_faults(path: str | None, kind: str | None) -> Iterator[str]:
    # bootkube.sh creates this directory; the kubelet must create directories below it.
    allowed = ("DirectoryOrCreate",) if path != BOOTSTRAP_CONFIGS_ON_HOST else ("DirectoryOrCreate", "Directory", None)
    if kind not in allowed:
        yield f"the hostPath {path} is of type {shown(kind)}, not {allowed[0]}"


def _protocol(facts: BootstrapFacts) -> Iterator[str]:
    protocol = dig(connections(facts).get("cluster"), "proxyProtocol")
    mode = facts.server.flags.values.get("--mode", "")
    modes = {known.value: known.proxy_protocol for known in Mode}
    if mode not in modes:
        yield f"the server's --mode is {shown(mode)}, not one of {', '.join(modes)}"
    elif modes[mode] != protocol:
        yield f"the server has --mode={mode}, kube-apiserver uses {shown(protocol)}"
    elif facts.mode is not None and facts.mode.value != mode:
        yield f"the server's --mode is {mode}, not {facts.mode.value} as expected"


EGRESS_RULES: Final[tuple[BootstrapCheck, ...]] = (
    rule(
        "C1",
        "the egress selector uses the socket for cluster, and direct connections for controlplane and etcd",
        "kube-apiserver decodes the file strictly and exits on an unknown field",
        _FIX,
        _egress,
        tunnel,
        files("egress"),
    ),
    rule(
        "C2",
        "the override sets only the egress flag, to the path in kube-apiserver's pod",
        "a wrong kind fails the render, a wrong key leaves the tunnel unused, a wrong path makes kube-apiserver exit; "
        f"the operator merges any key, but KubeAPIServerConfig has no {IGNORED_KEY}; only apiServerArguments counts, "
        f"with the path in the pod, where {BOOTSTRAP_CONFIGS_ON_HOST} is {BOOTSTRAP_CONFIGS_IN_POD}",
        _FIX,
        _override,
        tunnel,
        files("override"),
        bootkube,
    ),
    rule(
        "C3",
        "server and kube-apiserver use the same socket",
        "the host directory has another path in each pod; with a wrong path every call fails with 'no such file'",
        _FIX,
        _socket,
        tunnel,
        files("egress", "server_pod"),
    ),
    rule(
        "C4",
        "server and kube-apiserver use the same protocol",
        "with different protocols (gRPC and HTTP CONNECT) every call fails",
        _FIX,
        _protocol,
        tunnel,
        files("egress", "server_pod"),
    ),
)
