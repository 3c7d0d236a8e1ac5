"""The topology as text: at most 78 columns, as many lines whatever happens, and true."""

from dataclasses import replace

import pytest
from tests.support.told_stories import AGENTS, NODES

from umbilical.cli.story_picture import ASCII, COLUMNS, UNICODE, Glyphs, draw, ways
from umbilical.lab.story import Call, Picture

EMPTY = Picture(nodes=NODES)
BLOCKED = Picture(nodes=NODES, apiserver=True, webhook="worker-0", call=Call.UNREACHABLE)
WAITING = replace(BLOCKED, server=True)
CARRIED = replace(WAITING, agents=AGENTS, call=Call.ALLOWED)
CUT = replace(CARRIED, server=False, agents=(), production_apiserver=True, production_call=Call.ALLOWED)
ALL = (EMPTY, BLOCKED, WAITING, CARRIED, CUT)


def _lines(picture: Picture, glyphs: Glyphs = UNICODE) -> list[str]:
    return draw(picture, "kube-apiserver", glyphs).plain.splitlines()


def _ways(picture: Picture) -> list[str]:
    return [line.plain.strip() for line in ways(picture, "kube-apiserver")]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("picture", ALL)
def test_a_picture_is_a_rectangle_that_fits_a_narrow_terminal(picture: Picture, glyphs: Glyphs) -> None:
    lines = _lines(picture, glyphs)
    assert len(lines) == len(AGENTS) + 2
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= COLUMNS
    assert all(len(line.plain) <= COLUMNS for line in ways(picture, "kube-apiserver", glyphs))


@pytest.mark.parametrize("picture", ALL)
def test_a_terminal_without_utf_8_gets_ascii(picture: Picture) -> None:
    text = draw(picture, "kube-apiserver", ASCII).plain
    assert (text + "".join(line.plain for line in ways(picture, "kube-apiserver", ASCII))).isascii()


def test_a_blocked_call_has_no_route() -> None:
    assert "✗ no route" in _lines(BLOCKED)[1]
    assert _ways(BLOCKED)[0] == "bootstrap   kube-apiserver ╌╌╌✗ webhook                   ✗ unreachable"


def test_a_server_without_agents_waits() -> None:
    assert "no agent yet" in draw(WAITING, "kube-apiserver").plain
    assert "○ server" not in draw(WAITING, "kube-apiserver").plain


def test_a_carried_call_names_every_hop() -> None:
    assert "◀━━━" in draw(CARRIED, "kube-apiserver").plain
    assert "5 agents, mTLS" in draw(CARRIED, "kube-apiserver").plain
    assert draw(CARRIED, "kube-apiserver").plain.count("● agent") == 5
    assert _ways(CARRIED)[0] == "bootstrap   kube-apiserver → server → agent → webhook     ✓ allowed"


def test_one_agent_is_no_plural() -> None:
    assert "1 agent, mTLS" in draw(replace(CARRIED, agents=("worker-1",)), "kube-apiserver").plain


def test_an_answer_through_a_tunnel_that_is_gone_is_not_shown_any_more() -> None:
    assert _ways(CUT) == ["bootstrap   no call", "production  kube-apiserver → webhook                      ✓ allowed"]
    assert "○ server" in draw(CUT, "kube-apiserver").plain


def test_the_stand_in_is_called_by_its_name() -> None:
    assert "● stand-in" in draw(BLOCKED, "stand-in").plain
    assert "kube-apiserver" not in draw(CUT, "stand-in").plain
