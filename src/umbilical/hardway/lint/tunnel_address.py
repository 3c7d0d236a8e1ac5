"""For which address the bootstrap node makes the tunnel's certificate, and which one the agents dial."""

import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.applied import entries
from umbilical.hardway.lint.facts import Facts

AGENT_FLAG: Final = "--proxy-server-host="
_MADE_FOR: Final = re.compile(rf"^\s*\S+ (?P<address>\S+) {re.escape(layout.TUNNEL_PKI)}( \d+)?$", re.MULTILINE)


def tunnel_address_faults(facts: Facts) -> Iterator[str]:
    if not facts.has_tunnel:
        return
    script = facts.node_file(facts.cluster.bootstrap, BOOTKUBE).decode(errors="replace")
    made_for = {match["address"] for match in _MADE_FOR.finditer(script)}
    if not made_for:
        yield f"{BOOTKUBE} makes no certificate in {layout.TUNNEL_PKI}"
    for path, address in _dialled(facts):
        if address not in made_for:
            yield f"{path}: agents dial {address}, and the tunnel's certificate is for {', '.join(sorted(made_for))}"


def _dialled(facts: Facts) -> Iterator[tuple[str, str]]:
    for path, one in facts.manifests:
        for container in _containers(one) if one.get("kind") == "DaemonSet" else ():
            words = (*entries(container, "command"), *entries(container, "args"))
            said = [word for word in words if isinstance(word, str) and word.startswith(AGENT_FLAG)]
            yield from ((path, word.removeprefix(AGENT_FLAG)) for word in said)


def _containers(daemon_set: dict[str, Any]) -> list[Any]:
    return entries(daemon_set, "spec", "template", "spec", "containers")
