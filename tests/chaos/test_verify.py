"""The checks of chaos runs find every kind of problem, and accept failures that a fault explains."""

import itertools
import random
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.fault_injection import FaultKind, FaultSpec, InjectedFault, fault_pairs
from tests.chaos.pattern import BLOCK_BYTES, Check, Direction, Violation, stretch
from tests.chaos.testbed import SILENCE_SECONDS, ChaosProgram
from tests.chaos.tunnel_records import ClientRecord, EndpointRecord, Outcome, TrafficKind
from tests.chaos.verify import Participants, check_run

EVERY: Final = {FaultSpec(kind, role) for kind in FaultKind for role in ("server", "agent")}


@given(st.integers(0, 2**32))
def test_all_kinds_are_injected_for_both_roles_in_an_order_that_the_seed_determines(seed: int) -> None:
    pairs = list(fault_pairs(random.Random(seed)))
    specs = [spec for pair in pairs for spec in pair]
    assert {spec for spec in specs if not spec.is_long} == EVERY
    long = [pair for pair in pairs if pair[0].is_long]
    assert len(long) == 1
    assert {spec.role for spec in long[0]} == {"server", "agent"}
    assert list(fault_pairs(random.Random(seed))) == pairs


SIZE = 5 * BLOCK_BYTES
SENT = stretch(7, Direction.UP, 0, SIZE)


def _refusal(octets: bytes) -> str:
    with pytest.raises(Violation) as caught:
        Check(7, Direction.UP, SIZE).take(octets)
    return str(caught.value)


@given(st.lists(st.integers(0, SIZE), max_size=20))
def test_a_correct_stream_passes_in_any_pieces(cuts: list[int]) -> None:
    check = Check(7, Direction.UP, SIZE)
    places = sorted({0, *cuts, SIZE})
    for start, end in itertools.pairwise(places):
        assert not check.is_whole
        check.take(SENT[start:end])
    assert check.is_whole


@given(st.integers(0, SIZE - 1), st.integers(1, SIZE))
def test_a_stretch_is_a_piece_of_the_whole(offset: int, size: int) -> None:
    size = min(size, SIZE - offset)
    assert stretch(7, Direction.UP, offset, size) == SENT[offset : offset + size]


def test_the_violation_describes_the_wrong_bytes() -> None:
    assert _refusal(SENT[:1000] + SENT[1500:3000]) == "tunnel 7 at byte 1000: 500 bytes are lost"
    assert _refusal(SENT[:1000] + SENT[600:3000]) == "tunnel 7 at byte 1000: bytes of position 600 again"
    assert "are lost" in _refusal(SENT[:1000] + SENT[2000:3000] + SENT[1000:2000])
    assert "3 bytes more" in _refusal(SENT + b"abc")
    for tunnel, direction in ((8, Direction.UP), (7, Direction.DOWN)):
        assert "not of this stream" in _refusal(SENT[:1000] + stretch(tunnel, direction, 1000, 500))


@given(st.integers(0, SIZE - 1))
def test_one_wrong_bit_is_found_wherever_it_is(place: int) -> None:
    wrong = bytearray(SENT)
    wrong[place] ^= 1
    assert f"at byte {place}:" in _refusal(bytes(wrong))


SERVER: Final = ChaosProgram("server-0", "bootstrap", ())
AGENTS: Final = tuple(ChaosProgram(f"agent-{number}", f"worker-{number}", ()) for number in range(2))
ENDPOINT: Final = ChaosProgram("endpoint-1", "worker-1", ())
PARTICIPANTS: Final = Participants((SERVER, *AGENTS, ENDPOINT), {"10.0.0.1": "agent-0", "10.0.0.2": "agent-1"})
CLIENT: Final = ClientRecord(
    tunnel=1,
    server="server-0",
    endpoint="endpoint-1",
    kind=TrafficKind.ECHO,
    size=100,
    began=10.0,
    ended=20.0,
    caller="10.0.0.1",
    sent=100,
    received=100,
    acknowledged=100,
    outcome=Outcome.WHOLE,
)
ENDPOINT_SIDE: Final = EndpointRecord(1, "endpoint-1", TrafficKind.ECHO, 100, received=100, sent=100, how="closed")
BROKEN: Final = replace(CLIENT, outcome=Outcome.BROKEN, received=40, acknowledged=40, how="ended early")
REFUSED: Final = replace(CLIENT, outcome=Outcome.REFUSED, caller="", sent=0, received=0, acknowledged=0)


def _problems(client: ClientRecord, *endpoint_records: EndpointRecord, faults: tuple[InjectedFault, ...] = ()) -> str:
    return " | ".join(check_run(PARTICIPANTS, [client], endpoint_records, faults).problems)


def _fault(
    part: ChaosProgram, kind: FaultKind = FaultKind.KILL, began: float = 12.0, ended: float = 15.0
) -> InjectedFault:
    return InjectedFault(FaultSpec(kind, "agent"), part, began, ended)


def test_a_tunnel_that_came_twice_or_never_reached_its_endpoint_is_a_problem() -> None:
    assert not _problems(CLIENT, ENDPOINT_SIDE)
    assert "tunnel 1 came 2 times to endpoints" in _problems(CLIENT, ENDPOINT_SIDE, ENDPOINT_SIDE)
    assert "has no record" in _problems(CLIENT)


def test_records_that_differ_are_a_problem() -> None:
    for changed, problem in (
        (replace(ENDPOINT_SIDE, received=99), "100 acknowledged, 99 at the endpoint"),
        (replace(ENDPOINT_SIDE, received=101), "101 at the endpoint, 100 sent"),
        (replace(ENDPOINT_SIDE, sent=99), "100 at the client, 99 sent"),
        (replace(ENDPOINT_SIDE, endpoint="endpoint-2"), "the endpoint was asked for"),
        (replace(ENDPOINT_SIDE, tunnel=2), "no client opened tunnel 2"),
        (replace(ENDPOINT_SIDE, violation="crossed"), "crossed"),
    ):
        assert problem in _problems(CLIENT, changed)


def test_bytes_that_were_acknowledged_but_not_received_are_a_problem() -> None:
    down = replace(CLIENT, kind=TrafficKind.DOWN, sent=8, acknowledged=0, received=60, outcome=Outcome.BROKEN)
    record = EndpointRecord(1, "endpoint-1", TrafficKind.DOWN, 100, received=8, sent=100, acknowledged=64)
    assert "64 acknowledged, 60 at the client" in _problems(down, record, faults=(_fault(AGENTS[0]),))


def test_a_broken_tunnel_is_explained_only_by_a_fault_on_its_route_during_its_life() -> None:
    record = replace(ENDPOINT_SIDE, received=60)
    assert "ended early" in _problems(BROKEN, record)
    assert not _problems(BROKEN, record, faults=(_fault(AGENTS[0]),))
    assert not _problems(BROKEN, record, faults=(_fault(ENDPOINT, FaultKind.CUT),))
    assert "ended early" in _problems(BROKEN, record, faults=(_fault(AGENTS[1]),))
    assert "ended early" in _problems(BROKEN, record, faults=(_fault(AGENTS[0], began=3.0, ended=9.0),))
    assert "ended early" in _problems(BROKEN, record, faults=(_fault(AGENTS[0], began=21.0, ended=22.0),))


def test_a_fault_of_any_agent_explains_a_failed_dial_and_no_fault_explains_a_stalled_tunnel() -> None:
    assert _problems(REFUSED)
    assert not _problems(REFUSED, faults=(_fault(AGENTS[1]),))
    stalled = replace(BROKEN, outcome=Outcome.STALLED)
    assert "stalled" in _problems(stalled, replace(ENDPOINT_SIDE, received=60), faults=(_fault(AGENTS[0]),))


def test_a_kill_must_end_tunnels_before_a_ping_times_out() -> None:
    late = replace(BROKEN, ended=12.0 + SILENCE_SECONDS + 1)
    record = replace(ENDPOINT_SIDE, received=60)
    assert "after agent-0 was killed" in _problems(late, record, faults=(_fault(AGENTS[0]),))
    paused = _fault(SERVER, FaultKind.PAUSE, ended=40.0)
    assert not _problems(late, record, faults=(_fault(AGENTS[0]), paused))


def test_the_figures_count_tunnels_bytes_and_faults() -> None:
    figures = check_run(
        PARTICIPANTS, [CLIENT, replace(REFUSED, tunnel=2)], [ENDPOINT_SIDE], [_fault(AGENTS[0])]
    ).figures
    assert (figures["tunnels"], figures["whole"], figures["refused"]) == (2, 1, 1)
    assert figures["bytes"] == 200
    assert figures["faults"] == {"kill agent": 1}
