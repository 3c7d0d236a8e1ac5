"""Compare the records of both ends: bytes lost, repeated or crossed, and failures that no fault explains.

Acknowledged bytes are those that the receiver has confirmed to the sender through the tunnel.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.fault_injection import FaultKind, InjectedFault
from tests.chaos.testbed import SILENCE_SECONDS, ChaosProgram
from tests.chaos.tunnel_records import ClientRecord, EndpointRecord, Outcome, TrafficKind


@dataclass(frozen=True)
class Participants:
    """The programs that a tunnel can have passed."""

    programs: tuple[ChaosProgram, ...]
    callers: dict[str, str]
    """The address that an endpoint sees -> the agent that dials from it."""

    @property
    def agents(self) -> frozenset[str]:
        return frozenset(self.callers.values())

    def nodes(self, names: Iterable[str]) -> set[str]:
        node_of = {program.name: program.node for program in self.programs}
        return {node_of[name] for name in names}


@dataclass(frozen=True)
class RunReport:
    problems: tuple[str, ...]
    figures: dict[str, object]


def check_run(
    participants: Participants,
    clients: Sequence[ClientRecord],
    endpoints: Sequence[EndpointRecord],
    faults: Sequence[InjectedFault],
) -> RunReport:
    problems = [
        *disagreements(clients, endpoints),
        *(
            _unexplained(participants, client, faults)
            for client in clients
            if not _is_explained(participants, client, faults)
        ),
        *_late_ends(participants, clients, faults),
    ]
    return RunReport(tuple(problems), figures(participants, clients, faults))


def figures(
    participants: Participants, clients: Sequence[ClientRecord], faults: Sequence[InjectedFault]
) -> dict[str, object]:
    outcomes = Counter(client.outcome for client in clients)
    ends = [client.ended - fault.began for fault, client in _killed_in_flight(participants, clients, faults)]
    return {
        "tunnels": len(clients),
        **{outcome.value: outcomes[outcome] for outcome in Outcome},
        "bytes": sum(client.sent + client.received for client in clients),
        "faults": dict(sorted(Counter(str(fault.spec) for fault in faults).items())),
        "affected_tunnels": sum(bool(_faults_on(participants, client, faults)) for client in clients),
        "killed_in_flight": len(ends),
        "slowest_end_after_kill_seconds": round(max(ends, default=0.0), 3),
    }


def disagreements(clients: Sequence[ClientRecord], endpoints: Sequence[EndpointRecord]) -> Iterator[str]:
    """Yield bytes that were lost, repeated or crossed, whether the tunnel failed or not."""
    yield from (client.violation for client in clients if client.violation)
    yield from (record.violation for record in endpoints if record.violation)
    tunnels = {"clients": [row.tunnel for row in clients], "endpoints": [row.tunnel for row in endpoints]}
    for name, numbers in ((name, Counter(rows)) for name, rows in tunnels.items()):
        yield from (f"tunnel {number:x} came {count} times to {name}" for number, count in numbers.items() if count > 1)
    known = {client.tunnel: client for client in clients}
    records = {record.tunnel: record for record in endpoints}
    yield from (f"no client opened tunnel {number:x}" for number in records.keys() - known.keys())
    for number, client in known.items():
        yield from _compare(client, records.get(number))


def _compare(client: ClientRecord, record: EndpointRecord | None) -> Iterator[str]:
    title = f"tunnel {client.tunnel:x} ({client.kind}, {client.outcome})"
    if record is None:
        if client.received or client.outcome is Outcome.WHOLE:
            yield f"{title}: the endpoint has no record of it"
        return
    if (record.endpoint, record.kind, record.size) != (client.endpoint, client.kind, client.size):
        yield f"{title}: the endpoint was asked for {record}"
    if not client.acknowledged <= record.received <= client.sent:
        yield f"{title}: {client.acknowledged} acknowledged, {record.received} at the endpoint, {client.sent} sent"
    if client.kind is TrafficKind.DOWN and not record.acknowledged <= client.received <= record.sent:
        yield f"{title}: {record.acknowledged} acknowledged, {client.received} at the client, {record.sent} sent"
    if client.received > record.sent:
        yield f"{title}: {client.received} at the client, {record.sent} sent"
    if client.outcome is Outcome.WHOLE and record.received != client.sent:
        yield f"{title}: {record.received} of {client.sent} at the endpoint"


def _is_explained(participants: Participants, client: ClientRecord, faults: Sequence[InjectedFault]) -> bool:
    match client.outcome:
        case Outcome.WHOLE:
            return True
        case Outcome.STALLED:
            return False
    return bool(client.violation) or bool(_faults_on(participants, client, faults))


def _unexplained(participants: Participants, client: ClientRecord, faults: Sequence[InjectedFault]) -> str:
    found = [f"{fault.spec} of {fault.target}" for fault in _faults_on(participants, client, faults)]
    route = sorted(_route(participants, client))
    return f"tunnel {client.tunnel:x} {client.outcome} with {client.how!r}, on {route}, faults: {found}: {client}"


def _faults_on(
    participants: Participants, client: ClientRecord, faults: Sequence[InjectedFault]
) -> list[InjectedFault]:
    route = _route(participants, client)
    return [fault for fault in faults if fault.target in route and fault.overlaps(client.began, client.ended)]


def _route(participants: Participants, client: ClientRecord) -> set[str]:
    """Return all programs and nodes of a tunnel. If the endpoint did not answer, every agent is possible."""
    agents = {participants.callers[client.caller]} if client.caller else participants.agents
    programs = {client.server, client.endpoint, *agents}
    return programs | participants.nodes(programs)


def _killed_in_flight(
    participants: Participants, clients: Sequence[ClientRecord], faults: Sequence[InjectedFault]
) -> Iterator[tuple[InjectedFault, ClientRecord]]:
    """Yield tunnels that were open through a killed program and not affected by another fault."""
    for client in clients:
        if client.caller and client.outcome is Outcome.BROKEN:
            found = _faults_on(participants, client, faults)
            if len(found) == 1 and found[0].spec.kind is FaultKind.KILL and client.began < found[0].began:
                yield found[0], client


def _late_ends(
    participants: Participants, clients: Sequence[ClientRecord], faults: Sequence[InjectedFault]
) -> Iterator[str]:
    """The kernel closes the connections of a killed process at once; its tunnels must not wait for a ping."""
    for fault, client in _killed_in_flight(participants, clients, faults):
        seconds = client.ended - fault.began
        if seconds > SILENCE_SECONDS:
            yield f"tunnel {client.tunnel:x} ended {seconds:.1f} s after {fault.target} was killed"
