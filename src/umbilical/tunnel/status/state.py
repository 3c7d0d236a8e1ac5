"""The state of a server or an agent: one word with its reasons, judged from facts and from nothing else.

The same function serves the API, the metric `umbilical_state`, and, over the documents of several, the command.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from umbilical.record import Record

HEALTHY: Final = "healthy"
DEGRADED: Final = "degraded"
DOWN: Final = "down"
IDLE: Final = "idle"
STATES: Final = (HEALTHY, IDLE, DEGRADED, DOWN)
"""From good to bad."""

ENDING_SHARE: Final = 0.1
"""A certificate in the last tenth of its life."""
ENDING_SECONDS: Final = 30 * 24 * 3600.0
"""At most: a CA that lives ten years would otherwise count as ending for one of them."""
FAILED_SHARE: Final = 0.01
LEAST_FAILED: Final = 3
"""One failed dial of ten says little."""
BUDGET_SHARE: Final = 0.9
LEASE_SECONDS: Final = 30.0
"""How long a lease is valid after it was renewed, as in cluster/leases.py."""
MOST_NAMED: Final = 3
"""Of several peers that a reason names."""

Document = dict[str, Any]


class CertificateLife(Record):
    name: str
    """`agent-listener certificate`."""
    life_seconds: float
    left_seconds: float


class StateFacts(Record):
    """What the state depends on."""

    peer: str
    """What it needs: `agent` for a server, `server` for an agent."""
    connected: int = 0
    expected: int = 0
    """0: unknown."""
    usable: bool = True
    """A server may have agents of which no strategy would choose one."""
    leaving: str = ""
    """Why it ends on purpose; empty if it does not."""
    missing: tuple[str, ...] = ()
    """Peers that should be connected and are not, each with its reason."""
    last_refusal: str = ""
    """The last peer that tried and was refused."""
    certificates: tuple[CertificateLife, ...] = ()
    succeeded_dials: int = 0
    failed_dials: int = 0
    window_seconds: float = 0.0
    commonest_failure: str = ""
    lease_problem: str = ""
    budget_used_bytes: int = 0
    budget_bytes: int = 0
    open_tunnels: int = 0


class StateReason(Record):
    rule: str
    text: str


class JudgedState(Record):
    word: str
    reasons: tuple[StateReason, ...]
    """The most important first; never empty."""

    def as_members(self) -> Document:
        reasons = [{"rule": reason.rule, "text": reason.text} for reason in self.reasons]
        return {"state": self.word, "reason": self.reasons[0].text, "reasons": reasons}


def judge(facts: StateFacts) -> JudgedState:
    """Down comes before degraded, and degraded before idle."""
    down = _why_down(facts)
    if down:
        return JudgedState(DOWN, (*down, *_why_degraded(facts, is_down=True)))
    degraded = _why_degraded(facts, is_down=False)
    if degraded:
        return JudgedState(DEGRADED, degraded)
    peers = _count(facts.connected, facts.peer)
    if not facts.open_tunnels and not facts.succeeded_dials + facts.failed_dials:
        text = f"{peers} connected; no tunnel is open, and nobody dialled in the last {_span(facts.window_seconds)}"
        return JudgedState(IDLE, (StateReason("no-traffic", text),))
    text = f"{peers} connected, {_count(facts.open_tunnels, 'tunnel')} open"
    return JudgedState(HEALTHY, (StateReason("all-well", text),))


def _why_down(facts: StateFacts) -> tuple[StateReason, ...]:
    if facts.connected == 0:
        more = f"; {facts.missing[0]}" if facts.missing else ""
        more = f"; the last that tried was refused: {facts.last_refusal}" if facts.last_refusal else more
        return (StateReason(f"no-{facts.peer}", f"no {facts.peer} is connected{more}"),)
    if not facts.usable:
        text = f"{_count(facts.connected, facts.peer)} connected, but no configured strategy would choose one"
        return (StateReason(f"no-usable-{facts.peer}", text),)
    return ()


def _why_degraded(facts: StateFacts, *, is_down: bool) -> tuple[StateReason, ...]:
    found = [StateReason(rule, text) for rule, find in _RULES if (text := find(facts))]
    missing = "" if is_down else _missing(facts)
    return (StateReason(f"{facts.peer}-missing", missing), *found) if missing else tuple(found)


def _missing(facts: StateFacts) -> str:
    names = "; ".join(facts.missing[:MOST_NAMED])
    more = len(facts.missing) - MOST_NAMED
    names += f"; and {more} more" if more > 0 else ""
    if facts.connected < facts.expected:
        text = f"{facts.connected} of {_count(facts.expected, facts.peer)} connected"
        return f"{text}: {names}" if names else text
    return names


def _leaving(facts: StateFacts) -> str:
    return facts.leaving


def _lease(facts: StateFacts) -> str:
    return facts.lease_problem


def _ending(facts: StateFacts) -> str:
    ending = [one for one in facts.certificates if one.left_seconds < ending_limit(one.life_seconds)]
    if not ending:
        return ""
    first = min(ending, key=lambda one: one.left_seconds)
    if first.left_seconds <= 0:
        return f"{first.name} has expired {_span(-first.left_seconds)} ago"
    return f"{first.name} ends in {_span(first.left_seconds)}"


def ending_limit(life_seconds: float) -> float:
    return min(life_seconds * ENDING_SHARE, ENDING_SECONDS)


def _failing(facts: StateFacts) -> str:
    total = facts.failed_dials + facts.succeeded_dials
    if facts.failed_dials < LEAST_FAILED or facts.failed_dials <= total * FAILED_SHARE:
        return ""
    text = f"{facts.failed_dials} of {_count(total, 'dial')} failed in the last {_span(facts.window_seconds)}"
    return f"{text}, most with {facts.commonest_failure}" if facts.commonest_failure else text


def _budget(facts: StateFacts) -> str:
    used, total = facts.budget_used_bytes, facts.budget_bytes
    if total <= 0 or used <= total * BUDGET_SHARE:
        return ""
    return f"{used * 100 // total}% of the memory for receive windows is granted: {used} of {total} bytes"


_RULES: Final[Sequence[tuple[str, Callable[[StateFacts], str]]]] = (
    ("leaving", _leaving),
    ("lease-not-renewed", _lease),
    ("certificate-ends", _ending),
    ("dials-fail", _failing),
    ("memory-budget", _budget),
)
"""What degrades a server or an agent that has a peer, besides a missing one."""


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `20 days`."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds / size)} {unit}"
    return f"{max(0, round(seconds))} s"


def worst(words: Sequence[str]) -> str:
    """The state of several: one that is healthy among idle ones makes the set healthy."""
    if all(word == IDLE for word in words):
        return IDLE
    bad = [word for word in words if word not in (IDLE, HEALTHY)]
    if words and all(word == DOWN for word in words):
        return DOWN
    return DEGRADED if bad else HEALTHY


def facts_of(document: Document) -> StateFacts:
    """The facts in the document of a server or an agent, which need not list tunnels."""
    is_server = document["kind"] == "ServerStatus"
    peers = document["agents" if is_server else "servers"]
    dials = document["dials"]
    return StateFacts(
        peer="agent" if is_server else "server",
        connected=peers["count"],
        expected=peers["expected"] or 0,
        usable=not is_server or document["server"]["ready"] or document["server"]["stopping"],
        leaving=_leaving_text(document),
        missing=_lost(peers) if is_server else _unreached(peers),
        last_refusal=_refusal(peers["refused"]) if is_server else "",
        certificates=tuple(
            CertificateLife(f"{one['role']} {one['part']}", one["lifeSeconds"], one["leftSeconds"])
            for one in document["certificates"]
        ),
        succeeded_dials=dials["succeeded"],
        failed_dials=dials["failed"],
        window_seconds=dials["windowSeconds"],
        commonest_failure=_commonest(dials),
        lease_problem=_lease_problem(document["leases"]) if is_server else "",
        budget_used_bytes=document["windows"]["grantedBytes"],
        budget_bytes=document["windows"]["budgetBytes"],
        open_tunnels=document["tunnels"]["count"],
    )


def _leaving_text(document: Document) -> str:
    if document["kind"] == "ServerStatus":
        return "the server is stopping" if document["server"]["stopping"] else ""
    return "the agent is draining" if document["agent"]["draining"] else ""


def _lost(agents: Document) -> tuple[str, ...]:
    return tuple(f"agent {one['id']} was lost {_span(one['agoSeconds'])} ago: {_told(one)}" for one in agents["lost"])


def _unreached(servers: Document) -> tuple[str, ...]:
    waiting = [one for one in servers["unreached"] if one["error"] is not None]
    return tuple(f"{one['address']} is not reached: {_told(one['error'])}" for one in waiting)


def _refusal(refused: Sequence[Document]) -> str:
    if not refused:
        return ""
    last = refused[-1]
    return f"{last['address']}, {_span(last['agoSeconds'])} ago, {_told(last)}"


def _told(trouble: Document) -> str:
    return f"{trouble['code']} {trouble['text']}".strip()


def _commonest(dials: Document) -> str:
    counts = dials["failedByCode"]
    if not counts:
        return ""
    code = max(counts, key=lambda key: counts[key])
    texts = [one["text"] for one in dials["failures"] if one["code"] == code]
    return f"{code}: {texts[-1]}" if texts else str(code)


def _lease_problem(leases: Document) -> str:
    for one in leases["published"]:
        since = one["renewedAgoSeconds"]
        if since is None or since > LEASE_SECONDS:
            when = "is not renewed yet" if since is None else f"was last renewed {_span(since)} ago"
            why = f": {one['error']}" if one["error"] else ""
            return f"the lease of {one['server']} {when}{why}"
    return ""
