"""The accounts of both ends, compared: what was lost, doubled or crossed, and which failure no fault explains.

Acknowledged means: the client has the endpoint's own word, come back through the tunnel, that it had exactly those
bytes (for what is sent down, the other way round).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.field import SILENCE_SECONDS, Part
from tests.chaos.ledger import Outcome, Passage, Shape, Visit
from tests.chaos.monkey import Blow, Kind


@dataclass(frozen=True)
class Scene:
    """Who was there: what a tunnel can have gone through."""

    parts: tuple[Part, ...]
    callers: dict[str, str]
    """The address that an endpoint sees -> the agent that dials from it."""

    @property
    def agents(self) -> frozenset[str]:
        return frozenset(self.callers.values())

    def nodes(self, names: Iterable[str]) -> set[str]:
        node_of = {part.name: part.node for part in self.parts}
        return {node_of[name] for name in names}


@dataclass(frozen=True)
class Verdict:
    problems: tuple[str, ...]
    figures: dict[str, object]


def judge(scene: Scene, passages: Sequence[Passage], visits: Sequence[Visit], blows: Sequence[Blow]) -> Verdict:
    problems = [
        *disagreements(passages, visits),
        *(_explain_needed(scene, passage, blows) for passage in passages if not _is_explained(scene, passage, blows)),
        *_late_ends(scene, passages, blows),
    ]
    return Verdict(tuple(problems), figures(scene, passages, blows))


def figures(scene: Scene, passages: Sequence[Passage], blows: Sequence[Blow]) -> dict[str, object]:
    outcomes = Counter(passage.outcome for passage in passages)
    ends = [passage.ended - blow.began for blow, passage in _killed_in_flight(scene, passages, blows)]
    return {
        "tunnels": len(passages),
        **{outcome.value: outcomes[outcome] for outcome in Outcome},
        "bytes": sum(passage.sent + passage.received for passage in passages),
        "faults": dict(sorted(Counter(str(blow.card) for blow in blows).items())),
        "struck_tunnels": sum(bool(_felt(scene, passage, blows)) for passage in passages),
        "killed_in_flight": len(ends),
        "slowest_end_after_kill_seconds": round(max(ends, default=0.0), 3),
    }


def disagreements(passages: Sequence[Passage], visits: Sequence[Visit]) -> Iterator[str]:
    """Yield what was lost, doubled or crossed, whatever became of the tunnel."""
    yield from (passage.violation for passage in passages if passage.violation)
    yield from (visit.violation for visit in visits if visit.violation)
    tunnels = {"clients": [row.tunnel for row in passages], "endpoints": [row.tunnel for row in visits]}
    for name, numbers in ((name, Counter(rows)) for name, rows in tunnels.items()):
        yield from (f"tunnel {number:x} came {count} times to {name}" for number, count in numbers.items() if count > 1)
    known = {passage.tunnel: passage for passage in passages}
    visited = {visit.tunnel: visit for visit in visits}
    yield from (f"no client opened tunnel {number:x}" for number in visited.keys() - known.keys())
    for number, passage in known.items():
        yield from _accounts_disagree(passage, visited.get(number))


def _accounts_disagree(passage: Passage, visit: Visit | None) -> Iterator[str]:
    title = f"tunnel {passage.tunnel:x} ({passage.shape}, {passage.outcome})"
    if visit is None:
        if passage.received or passage.outcome is Outcome.WHOLE:
            yield f"{title}: the endpoint knows nothing of it"
        return
    if (visit.endpoint, visit.shape, visit.size) != (passage.endpoint, passage.shape, passage.size):
        yield f"{title}: the endpoint was told {visit}"
    if not passage.acknowledged <= visit.received <= passage.sent:
        yield f"{title}: {passage.acknowledged} acknowledged, {visit.received} at the endpoint, {passage.sent} sent"
    if passage.shape is Shape.DOWN and not visit.acknowledged <= passage.received <= visit.sent:
        yield f"{title}: {visit.acknowledged} acknowledged, {passage.received} at the client, {visit.sent} sent"
    if passage.received > visit.sent:
        yield f"{title}: {passage.received} at the client, {visit.sent} sent"
    if passage.outcome is Outcome.WHOLE and visit.received != passage.sent:
        yield f"{title}: {visit.received} of {passage.sent} at the endpoint"


def _is_explained(scene: Scene, passage: Passage, blows: Sequence[Blow]) -> bool:
    match passage.outcome:
        case Outcome.WHOLE:
            return True
        case Outcome.STALLED:
            return False
    return bool(passage.violation) or bool(_felt(scene, passage, blows))


def _explain_needed(scene: Scene, passage: Passage, blows: Sequence[Blow]) -> str:
    felt = [f"{blow.card} of {blow.struck}" for blow in _felt(scene, passage, blows)]
    way = sorted(_way(scene, passage))
    return f"tunnel {passage.tunnel:x} {passage.outcome} with {passage.how!r}, on {way}, struck: {felt}: {passage}"


def _felt(scene: Scene, passage: Passage, blows: Sequence[Blow]) -> list[Blow]:
    way = _way(scene, passage)
    return [blow for blow in blows if blow.struck in way and blow.was_felt(passage.began, passage.ended)]


def _way(scene: Scene, passage: Passage) -> set[str]:
    """Name all that a tunnel went through. Before the endpoint's word it may have been any agent, or several."""
    agents = {scene.callers[passage.caller]} if passage.caller else scene.agents
    parts = {passage.server, passage.endpoint, *agents}
    return parts | scene.nodes(parts)


def _killed_in_flight(
    scene: Scene, passages: Sequence[Passage], blows: Sequence[Blow]
) -> Iterator[tuple[Blow, Passage]]:
    """Yield what was under way through the victim of a kill and through nothing else that was struck."""
    for passage in passages:
        if passage.caller and passage.outcome is Outcome.BROKEN:
            felt = _felt(scene, passage, blows)
            if len(felt) == 1 and felt[0].card.kind is Kind.KILL and passage.began < felt[0].began:
                yield felt[0], passage


def _late_ends(scene: Scene, passages: Sequence[Passage], blows: Sequence[Blow]) -> Iterator[str]:
    """A connection whose process died says so at once; only a silent one has to be found out by a ping."""
    for blow, passage in _killed_in_flight(scene, passages, blows):
        seconds = passage.ended - blow.began
        if seconds > SILENCE_SECONDS:
            yield f"tunnel {passage.tunnel:x} ended {seconds:.1f} s after {blow.struck} was killed"
