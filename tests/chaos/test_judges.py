"""The judges of the storm can be trusted: they find each thing that must not be, and let pass what a fault explains."""

import itertools
import random
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.field import SILENCE_SECONDS, Part
from tests.chaos.ledger import Outcome, Passage, Shape, Visit
from tests.chaos.monkey import Blow, Card, Kind, rounds
from tests.chaos.pattern import BLOCK_BYTES, Check, Direction, Violation, stretch
from tests.chaos.verify import Scene, judge

EVERY: Final = {Card(kind, role) for kind in Kind for role in ("server", "agent")}


@given(st.integers(0, 2**32))
def test_a_deck_has_every_kind_for_both_roles_and_is_the_same_by_its_seed(seed: int) -> None:
    dealt = list(rounds(random.Random(seed)))
    cards = [card for pair in dealt for card in pair]
    assert {card for card in cards if not card.is_long} == EVERY
    long = [pair for pair in dealt if pair[0].is_long]
    assert len(long) == 1
    assert {card.role for card in long[0]} == {"server", "agent"}
    assert list(rounds(random.Random(seed))) == dealt


SIZE = 5 * BLOCK_BYTES
SENT = stretch(7, Direction.UP, 0, SIZE)


def _refusal(octets: bytes) -> str:
    with pytest.raises(Violation) as caught:
        Check(7, Direction.UP, SIZE).take(octets)
    return str(caught.value)


@given(st.lists(st.integers(0, SIZE), max_size=20))
def test_a_stream_is_right_in_whatever_pieces_it_comes(cuts: list[int]) -> None:
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


def test_wrong_bytes_are_told_by_what_is_wrong_with_them() -> None:
    assert _refusal(SENT[:1000] + SENT[1500:3000]) == "tunnel 7 at byte 1000: 500 bytes are lost"
    assert _refusal(SENT[:1000] + SENT[600:3000]) == "tunnel 7 at byte 1000: bytes of place 600 again"
    assert "are lost" in _refusal(SENT[:1000] + SENT[2000:3000] + SENT[1000:2000])
    assert "3 bytes more" in _refusal(SENT + b"abc")
    for tunnel, direction in ((8, Direction.UP), (7, Direction.DOWN)):
        assert "not of this stream" in _refusal(SENT[:1000] + stretch(tunnel, direction, 1000, 500))


@given(st.integers(0, SIZE - 1))
def test_one_wrong_bit_is_found_wherever_it_is(place: int) -> None:
    wrong = bytearray(SENT)
    wrong[place] ^= 1
    assert f"at byte {place}:" in _refusal(bytes(wrong))


SERVER: Final = Part("server-0", "bootstrap", ())
AGENTS: Final = tuple(Part(f"agent-{number}", f"worker-{number}", ()) for number in range(2))
ENDPOINT: Final = Part("endpoint-1", "worker-1", ())
SCENE: Final = Scene((SERVER, *AGENTS, ENDPOINT), {"10.0.0.1": "agent-0", "10.0.0.2": "agent-1"})
PASSAGE: Final = Passage(
    tunnel=1,
    server="server-0",
    endpoint="endpoint-1",
    shape=Shape.ECHO,
    size=100,
    began=10.0,
    ended=20.0,
    caller="10.0.0.1",
    sent=100,
    received=100,
    acknowledged=100,
    outcome=Outcome.WHOLE,
)
VISIT: Final = Visit(1, "endpoint-1", Shape.ECHO, 100, received=100, sent=100, how="closed")
BROKEN: Final = replace(PASSAGE, outcome=Outcome.BROKEN, received=40, acknowledged=40, how="ended early")
REFUSED: Final = replace(PASSAGE, outcome=Outcome.REFUSED, caller="", sent=0, received=0, acknowledged=0)


def _problems(passage: Passage, *visits: Visit, blows: tuple[Blow, ...] = ()) -> str:
    return " | ".join(judge(SCENE, [passage], visits, blows).problems)


def _blow(part: Part, kind: Kind = Kind.KILL, began: float = 12.0, ended: float = 15.0) -> Blow:
    return Blow(Card(kind, "agent"), part, began, ended)


def test_a_tunnel_that_came_twice_or_that_no_endpoint_knows_is_told() -> None:
    assert not _problems(PASSAGE, VISIT)
    assert "tunnel 1 came 2 times to endpoints" in _problems(PASSAGE, VISIT, VISIT)
    assert "knows nothing" in _problems(PASSAGE)


def test_accounts_that_differ_are_told() -> None:
    for changed, problem in (
        (replace(VISIT, received=99), "100 acknowledged, 99 at the endpoint"),
        (replace(VISIT, received=101), "101 at the endpoint, 100 sent"),
        (replace(VISIT, sent=99), "100 at the client, 99 sent"),
        (replace(VISIT, endpoint="endpoint-2"), "the endpoint was told"),
        (replace(VISIT, tunnel=2), "no client opened tunnel 2"),
        (replace(VISIT, violation="crossed"), "crossed"),
    ):
        assert problem in _problems(PASSAGE, changed)


def test_bytes_that_the_endpoint_counts_on_and_the_client_never_had_are_lost() -> None:
    down = replace(PASSAGE, shape=Shape.DOWN, sent=8, acknowledged=0, received=60, outcome=Outcome.BROKEN)
    visit = Visit(1, "endpoint-1", Shape.DOWN, 100, received=8, sent=100, acknowledged=64)
    assert "64 acknowledged, 60 at the client" in _problems(down, visit, blows=(_blow(AGENTS[0]),))


def test_a_broken_tunnel_needs_a_fault_on_its_own_way_and_in_its_own_time() -> None:
    visit = replace(VISIT, received=60)
    assert "ended early" in _problems(BROKEN, visit)
    assert not _problems(BROKEN, visit, blows=(_blow(AGENTS[0]),))
    assert not _problems(BROKEN, visit, blows=(_blow(ENDPOINT, Kind.CUT),))
    assert "ended early" in _problems(BROKEN, visit, blows=(_blow(AGENTS[1]),))
    assert "ended early" in _problems(BROKEN, visit, blows=(_blow(AGENTS[0], began=3.0, ended=9.0),))
    assert "ended early" in _problems(BROKEN, visit, blows=(_blow(AGENTS[0], began=21.0, ended=22.0),))


def test_a_dial_may_fail_by_any_agent_and_nothing_explains_a_tunnel_that_stands_still() -> None:
    assert _problems(REFUSED)
    assert not _problems(REFUSED, blows=(_blow(AGENTS[1]),))
    stalled = replace(BROKEN, outcome=Outcome.STALLED)
    assert "stalled" in _problems(stalled, replace(VISIT, received=60), blows=(_blow(AGENTS[0]),))


def test_a_kill_must_be_felt_before_a_ping_could_tell() -> None:
    late = replace(BROKEN, ended=12.0 + SILENCE_SECONDS + 1)
    visit = replace(VISIT, received=60)
    assert "after agent-0 was killed" in _problems(late, visit, blows=(_blow(AGENTS[0]),))
    paused = _blow(SERVER, Kind.PAUSE, ended=40.0)
    assert not _problems(late, visit, blows=(_blow(AGENTS[0]), paused))


def test_the_figures_tell_what_happened() -> None:
    figures = judge(SCENE, [PASSAGE, replace(REFUSED, tunnel=2)], [VISIT], [_blow(AGENTS[0])]).figures
    assert (figures["tunnels"], figures["whole"], figures["refused"]) == (2, 1, 1)
    assert figures["bytes"] == 200
    assert figures["faults"] == {"kill agent": 1}
