"""Faults between the two ends of the tunnel: socket, protocol, port, address, certificate, removal."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.names import AGENT_NAME, BOOTKUBE, SERVER_NAME
from umbilical.bootstrap.render.kube_apiserver import EGRESS_FLAG
from umbilical.bootstrap.spec import Mode
from umbilical.bootstrap.verify.documents import dig, mappings, parse_flags, shown
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.placement import CONFIG_FOLDER
from umbilical.hardway.artifacts.static_pods.pods import AFTER_MEMBER_REMOVAL, PIVOT_STAGE, REMOVALS_PATH, TUNNEL
from umbilical.hardway.lint.applied import entries
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.hardway.lint.pods import StaticPod, program_pod
from umbilical.hardway.lint.service_proxies import removal

AGENT_FLAG: Final = "--proxy-server-host="
_MADE_FOR: Final = re.compile(rf"^\s*\S+ (?P<address>\S+) {re.escape(layout.TUNNEL_PKI)}( \d+)?$", re.MULTILINE)


def tunnel_address_faults(facts: LintFacts) -> Iterator[str]:
    if not facts.has_tunnel:
        return
    script = facts.node_file(facts.cluster.bootstrap, BOOTKUBE).decode(errors="replace")
    made_for = {match["address"] for match in _MADE_FOR.finditer(script)}
    if not made_for:
        yield f"{BOOTKUBE} makes no certificates in {layout.TUNNEL_PKI}"
    for path, address in _dialled(facts):
        if address not in made_for:
            yield f"{path}: agents dial {address}, but the tunnel's certificate is for {', '.join(sorted(made_for))}"


def _dialled(facts: LintFacts) -> Iterator[tuple[str, str]]:
    for path, one in facts.manifests:
        for container in _containers(one) if one.get("kind") == "DaemonSet" else ():
            words = (*entries(container, "command"), *entries(container, "args"))
            said = [word for word in words if isinstance(word, str) and word.startswith(AGENT_FLAG)]
            yield from ((path, word.removeprefix(AGENT_FLAG)) for word in said)


def _containers(daemon_set: dict[str, Any]) -> list[Any]:
    return entries(daemon_set, "spec", "template", "spec", "containers")


KUBE_APISERVER: Final = "kube-apiserver"
DIRECT: Final = ("controlplane", "etcd")
_HOURS: Final = re.compile(rf"{re.escape(layout.TUNNEL_PKI)} (?P<hours>\d+)\s*$", re.MULTILINE)


def socket_faults(facts: LintFacts) -> Iterator[str]:
    server = _server(facts)
    listening = server.on_host(server.flag("uds-name"))
    inside = dig(_connections(facts).get("cluster"), "transport", "uds", "udsName")
    if not isinstance(inside, str):
        yield f"the egress selector's socket for the cluster is {shown(inside)}"
        return
    dialled = _kube_apiserver(facts).on_host(inside)
    if listening != dialled:
        yield f"the server listens on {listening} of the host, but kube-apiserver dials {dialled}"


def protocol_faults(facts: LintFacts) -> Iterator[str]:
    found = _connections(facts)
    if sorted(found) != sorted(("cluster", *DIRECT)):
        yield f"the egress selections are {', '.join(sorted(found)) or 'none'}, not cluster, {' and '.join(DIRECT)}"
    for name, connection in found.items():
        wanted = "Direct" if name in DIRECT else Mode.GRPC.proxy_protocol
        if dig(connection, "proxyProtocol") != wanted:
            yield f"{name} has proxyProtocol {shown(dig(connection, 'proxyProtocol'))}, not {wanted}"
    mode = _server(facts).flag("mode")
    if mode != Mode.GRPC.value:
        yield f"the server's mode is {mode}, kube-apiserver uses {Mode.GRPC.value}"


def agent_faults(facts: LintFacts) -> Iterator[str]:
    path, agents = _agents(facts)
    flags = parse_flags(dig(agents, "spec", "template", "spec", "containers", 0) or {}).values
    served = _server(facts).flag("agent-port")
    port = flags.get("--proxy-server-port")
    if port != served:
        yield f"{path}: agents dial port {shown(port)}, but the server listens for them on {served}"
    if "--proxy-server-host" not in flags:
        yield f"{path}: agents have no --proxy-server-host"
    yield from tunnel_address_faults(facts)


def cleanup_faults(facts: LintFacts) -> Iterator[str]:
    step = removal(facts, TUNNEL)
    if step is None:
        yield f"{REMOVALS_PATH} has no step that removes the tunnel"
        return
    namespace = dig(_agents(facts)[1], "metadata", "namespace")
    if step.namespace != namespace:
        yield f"the removal deletes namespace {step.namespace or 'none'}, but the agents are in {shown(namespace)}"
    file = f"{layout.NODE_MANIFESTS}/{_server(facts).file}"
    if (facts.cluster.bootstrap.id, file) not in step.files:
        yield f"no step removes {file} from the bootstrap node"
    if step.stage != PIVOT_STAGE or step.after != AFTER_MEMBER_REMOVAL:
        yield f"stage {step.stage} removes the tunnel after `{step.after}`, when it may still be needed"


def master_faults(facts: LintFacts) -> Iterator[str]:
    folders = [f"{folder}/{node.id}" for node in facts.cluster.masters for folder in _POD_FOLDERS]
    for folder in (*folders, layout.MANIFESTS):
        for asset in facts.below(folder):
            if EGRESS_FLAG.encode() in asset.content:
                yield f"{asset.path} has {EGRESS_FLAG}, but a master does not have the tunnel's socket"


def lifetime_faults(facts: LintFacts) -> Iterator[str]:
    script = facts.node_file(facts.cluster.bootstrap, BOOTKUBE).decode(errors="replace")
    found = _HOURS.search(script)
    if found is None:
        raise Unreadable(f"{BOOTKUBE} has no lifetime for the tunnel's certificates")
    hours, budget = int(found["hours"]), facts.cluster.terms.budget_hours
    if hours <= budget:
        yield f"the tunnel's certificates are valid for {hours} h, but an installation may take {budget} h"


_POD_FOLDERS: Final = (layout.STATIC_PODS, layout.LATE_STATIC_PODS)


def _server(facts: LintFacts) -> StaticPod:
    return program_pod(facts, SERVER_NAME, facts.cluster.bootstrap)


def _kube_apiserver(facts: LintFacts) -> StaticPod:
    return program_pod(facts, KUBE_APISERVER, facts.cluster.bootstrap)


def _agents(facts: LintFacts) -> tuple[str, dict[str, Any]]:
    for path, one in facts.manifests:
        if one.get("kind") == "DaemonSet" and dig(one, "metadata", "name") == AGENT_NAME:
            return path, one
    raise Unreadable(f"no manifest has the DaemonSet {AGENT_NAME}")


def _connections(facts: LintFacts) -> dict[str, Any]:
    """Read the egress selector file of kube-apiserver's flag, through its mount."""
    pod = _kube_apiserver(facts)
    path = pod.on_host(pod.flag(EGRESS_FLAG))
    if posixpath.dirname(path) != layout.NODE_CONFIGS:
        raise Unreadable(f"{pod.path}: --{EGRESS_FLAG} is {path} on the host, not in {layout.NODE_CONFIGS}")
    file = layout.static_pod(pod.node, f"{CONFIG_FOLDER}/{posixpath.basename(path)}")
    selections = mappings(facts.document(file).get("egressSelections"))
    return {str(one.get("name")): one.get("connection") for one in selections}
