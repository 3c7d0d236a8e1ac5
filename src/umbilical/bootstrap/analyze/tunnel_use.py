"""Checks of kube-apiserver's calls to pods: is there a tunnel, does kube-apiserver use it, does the pod answer.

A refused dial has the same text with a gRPC tunnel as without one: only kube-apiserver's flag separates the two.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Final

from umbilical.bootstrap.analyze.facts import BundleFacts, Network, networks
from umbilical.bootstrap.analyze.signatures import CALLS, FileKind
from umbilical.bootstrap.names import STAGES
from umbilical.checks.check import Outcome, Verdict, failed, passed, skipped, warned

NO_TUNNEL: Final = "this installation has no tunnel"
NOT_USED: Final = "kube-apiserver does not use the tunnel"
_USE_UNKNOWN: Final = "the bundle does not show whether kube-apiserver uses the tunnel"
_HARMLESS: Final = "these calls block nothing: failurePolicy Ignore, or an aggregated API"
_NO_ARGUMENT: Final = "rendered-assets/openshift/kube-apiserver-bootstrap/config: without egress-selector-config-file"
MAX_SHOWN: Final = 4
_WITHOUT_ROUTE, _WITHOUT_ANSWER, _TOLERATED = CALLS
# The first bootkube step after the server's, and the last ones: every release has them.
_AFTER_SERVER: Final = ("kube-apiserver-bootstrap", "cb-bootstrap")
_ASKED: Final = ("egress flag", "no socket", "no egress file", "bad egress file", "proxy error", "no agent")
"""Lines that only a kube-apiserver with an egress file causes."""
_TUNNEL_KINDS: Final = frozenset({FileKind.SERVER_LOG, FileKind.AGENT_LOG, FileKind.CERTIFICATES, FileKind.DAEMON_SET})


def missing_tunnel(facts: BundleFacts) -> str:
    """Return the evidence that the installation has no tunnel; empty if it has one, or if the bundle does not show."""
    if _shows_tunnel(facts):
        return ""
    if late := step_without_server(facts):
        return f"{NO_TUNNEL}: bootkube ran {late}, and never {STAGES[0]}"
    if FileKind.NETWORKS in facts.kinds and FileKind.NATIVE_FILES not in facts.kinds:
        return f"{NO_TUNNEL}: the installer's files in rendered-assets/openshift contain none"
    return f"{NO_TUNNEL}: {NOT_USED}, and the bundle has no other trace of one" if uses_tunnel(facts) is False else ""


def step_without_server(facts: BundleFacts) -> str:
    """Return the step that ran although the tunnel's steps before it never did; empty if there is none."""
    stages = _stages(facts)
    return "" if set(stages) & set(STAGES) else next((stage for stage in stages if stage in _AFTER_SERVER), "")


def uses_tunnel(facts: BundleFacts) -> bool | None:
    """Whether kube-apiserver has an egress file, from its log or else its configuration; None if unknown."""
    if any(name in facts.matches for name in _ASKED):
        return True
    if "no egress flag" in facts.matches:
        return False
    return "egress argument" in facts.matches if FileKind.APISERVER_CONFIG in facts.kinds else None


def needs_use(check: Callable[[BundleFacts], Verdict]) -> Callable[[BundleFacts], Verdict]:
    """Skip the check instead of passing it, if kube-apiserver dials pods and is not known to use the tunnel."""

    def checked(facts: BundleFacts) -> Verdict:
        found, use = check(facts), uses_tunnel(facts)
        if found.outcome is not Outcome.PASSED:
            return found
        if use is False:
            return skipped(NOT_USED)
        return skipped(_USE_UNKNOWN) if use is None and _to_pods(facts, *CALLS) else found

    return checked


def has_tunnel(facts: BundleFacts) -> Verdict:
    missing = missing_tunnel(facts)
    if not missing:
        return passed() if _shows_tunnel(facts) else skipped(FileKind.RECORD.value)
    if blocked := _to_pods(facts, _WITHOUT_ROUTE, _WITHOUT_ANSWER):
        return failed("\n".join([missing, *blocked]))
    tolerated = _to_pods(facts, _TOLERATED)
    return warned("\n".join([missing, _HARMLESS, *tolerated])) if tolerated else skipped(NO_TUNNEL)


def tunnel_used(facts: BundleFacts) -> Verdict:
    use, calls = uses_tunnel(facts), _to_pods(facts, *CALLS)
    if missing_tunnel(facts):
        return skipped(NO_TUNNEL)
    if use is False:
        return failed("\n".join([*_configuration(facts), *calls]))
    if use or not calls:
        return passed() if use else skipped(FileKind.APISERVER_CONFIG.value)
    lines = "\n".join([_USE_UNKNOWN, *calls])
    # The agents' nodes have routes to pods.
    return failed(lines) if _to_pods(facts, _WITHOUT_ROUTE) else warned(lines)


def endpoints_answer(facts: BundleFacts) -> Verdict:
    """Judge calls that reached the endpoint's network: on a node's address, or through the tunnel."""
    found = [str(facts.matches["no endpoint"])] if "no endpoint" in facts.matches else []
    for name in (_WITHOUT_ROUTE, _WITHOUT_ANSWER):
        for address, matches in facts.calls.get(name, {}).items():
            if address and (uses_tunnel(facts) or not _is_of_pod(facts, address)):
                found.append(str(matches))
    if found:
        return failed("\n".join(found[:MAX_SHOWN]))
    return passed() if FileKind.APISERVER_LOG in facts.kinds else skipped(FileKind.APISERVER_LOG.value)


def _shows_tunnel(facts: BundleFacts) -> bool:
    is_set_up = facts.is_patched or not facts.kinds.isdisjoint(_TUNNEL_KINDS)
    return is_set_up or any(stage in STAGES for stage in _stages(facts)) or uses_tunnel(facts) is True


def _stages(facts: BundleFacts) -> list[str]:
    return [entry.stage for entry in facts.bootkube.entries] if facts.bootkube is not None else []


def _configuration(facts: BundleFacts) -> list[str]:
    """Say where the egress flag is missing, and which key was mistaken for it."""
    matches = facts.matches
    lines = [str(matches["no egress flag"])] if "no egress flag" in matches else [_NO_ARGUMENT]
    return [*lines, f"without effect: {matches['egress key']}"] if "egress key" in matches else lines


def _to_pods(facts: BundleFacts, *names: str) -> list[str]:
    found = [
        str(matches)
        for name in names
        for address, matches in facts.calls.get(name, {}).items()
        if _is_of_pod(facts, address)
    ]
    return found[:MAX_SHOWN]


def _is_of_pod(facts: BundleFacts, address: str) -> bool:
    """Whether the address is a pod's or a service's. Without the cluster's networks: if it is not near the node."""
    if not address:
        return True
    if facts.cluster_networks:
        return _is_in(address, facts.cluster_networks)
    return address not in facts.nodes and not _is_in(address, networks(facts.routes))


def _is_in(address: str, of: Iterable[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in of)
