"""The drawn topology shows what the picture says, and no more."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.support.told_stories import AGENTS, NODES

from umbilical.lab.report_topology import WIDTH, described, topology
from umbilical.lab.story import Call, Picture

BLOCKED = Picture(nodes=NODES, apiserver=True, webhook="worker-0", call=Call.UNREACHABLE)
CARRIED = replace(BLOCKED, server=True, agents=AGENTS, call=Call.ALLOWED)
CUT = replace(CARRIED, server=False, agents=(), production_apiserver=True, production_call=Call.ALLOWED)


def _drawn(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(topology(picture))


def _words(picture: Picture) -> list[str]:
    return [shape.text or "" for shape in _drawn(picture).iter("text")]


def _ways(picture: Picture, kind: str) -> int:
    return sum((shape.get("class") or "").startswith(f"way {kind}") for shape in _drawn(picture).iter())


def test_all_machines_are_named() -> None:
    assert set(NODES) <= set(_words(BLOCKED))


def test_a_blocked_call_ends_at_a_cross_and_says_why() -> None:
    assert "no route" in _words(BLOCKED)
    assert _ways(BLOCKED, "unreachable") == 2
    assert _words(BLOCKED).count("agent") == 0


def test_a_carried_call_takes_the_socket_every_cord_and_the_last_leg() -> None:
    # Socket and its tip, five cords and their tip, the way to the pod.
    assert _ways(CARRIED, "allowed") == 2 + 6 + 1
    assert _words(CARRIED).count("agent") == 5
    assert "5 agents, mutual TLS" in _words(CARRIED)
    assert "no route" not in _words(CARRIED)


def test_one_agent_is_no_plural() -> None:
    assert "1 agent, mutual TLS" in _words(replace(CARRIED, agents=("master-1",)))


def test_cords_without_a_call_are_in_their_own_colour() -> None:
    waiting = replace(CARRIED, call=Call.NONE)
    assert _ways(waiting, "cord") == 6
    assert _ways(waiting, "idle") == 2


def test_after_the_cut_only_production_has_a_way() -> None:
    assert _ways(CUT, "allowed") == 1
    assert _words(CUT).count("kube-apiserver") == 2
    assert 'class="absent server"' in topology(CUT)


def test_the_stand_in_is_called_by_its_name() -> None:
    drawn = topology(CUT, "stand-in")
    assert "kube-apiserver" not in drawn
    assert drawn.count(">stand-in<") == 2


def test_it_is_described_for_those_who_cannot_see_it() -> None:
    assert _drawn(CARRIED).get("aria-label") == described(CARRIED, "kube-apiserver")
    assert "server up, 5 agents connected" in described(CARRIED, "kube-apiserver")
    assert "production kube-apiserver: allowed" in described(CUT, "kube-apiserver")


@pytest.mark.parametrize(
    "picture", [Picture(), Picture(nodes=NODES), BLOCKED, CARRIED, CUT, Picture(webhook="nowhere")]
)
def test_every_picture_can_be_drawn(picture: Picture) -> None:
    assert _drawn(picture).get("viewBox", "").startswith(f"0 0 {WIDTH:g} ")


def test_a_large_lab_is_drawn_higher() -> None:
    many = tuple(f"worker-{number}" for number in range(20))
    assert set(many) <= set(_words(Picture(nodes=many)))


def test_a_call_that_the_tunnel_loses_ends_at_a_cross_on_the_cords() -> None:
    lost = replace(CARRIED, call=Call.UNREACHABLE)
    # Socket, its tip, the cross.
    assert _ways(lost, "unreachable") == 3
    assert _ways(lost, "cord") == 6
