"""Views and pictures of a transcript."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fixture_types import Captured, Patch
from tests.support.transcripts import AGENTS, DENIED, NODES, TITLE, UNREACHABLE, failed_transcript, whole_transcript

from umbilical.cli.lab.transcript_picture import ASCII, COLUMNS, UNICODE, Glyphs, draw, routes
from umbilical.cli.lab.transcript_view import TranscriptLines, choose_view, summary
from umbilical.lab.transcript import CallResult, Picture, Transcript

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
TELL = """
import sys
from tests.support.transcripts import TITLE, whole_transcript
from umbilical.cli.lab.transcript_view import choose_view
with choose_view(TITLE) as view:
    whole_transcript(view)
"""
WAIT = """
import time
from tests.support.transcripts import TITLE
from umbilical.cli.lab.transcript_view import choose_view
from umbilical.lab.transcript import Transcript
with choose_view(TITLE) as view, Transcript(TITLE, view).step("for ever"):
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: Patch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def _plain(capsys: Captured) -> str:
    with choose_view(TITLE) as view:
        assert isinstance(view, TranscriptLines)
        whole_transcript(view)
    return capsys.readouterr().out


def test_what_is_no_terminal_gets_a_line_per_event_without_codes(capsys: Captured) -> None:
    lines = _plain(capsys).splitlines()
    assert lines[0] == TITLE
    assert lines[1:4] == [
        "   0.0 s  6 nodes and their networks",
        "          bootstrap has no route to 10.92.0.0/16",
        "          ✓ 1.4 s",
    ]
    assert not any("\x1b" in line for line in lines)


def test_plain_lines_tell_calls_as_they_change_and_the_stand_in_by_its_name(capsys: Captured) -> None:
    calls = [line.strip() for line in _plain(capsys).splitlines() if "call from the" in line]
    assert calls == [
        "call from the bootstrap kube-apiserver: unreachable",
        "call from the production kube-apiserver: denied",
        "call from the bootstrap kube-apiserver: allowed",
        "call from the bootstrap kube-apiserver: denied",
        "call from the production kube-apiserver: allowed",
    ]
    with choose_view(TITLE, is_stand_in=True) as view:
        whole_transcript(view)
    assert "call from the bootstrap stand-in: unreachable" in capsys.readouterr().out


def test_colour_comes_into_a_pipe_only_when_asked_for(capsys: Captured, monkeypatch: Patch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = _plain(capsys)
    assert "\x1b[32m✓" in coloured
    monkeypatch.delenv("FORCE_COLOR")
    assert ESCAPES.sub("", coloured) == _plain(capsys)


def test_every_line_is_out_before_the_next_event() -> None:
    class Counting(io.StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    stream = Counting()
    whole_transcript(TranscriptLines(TITLE, stream))
    assert stream.flushes == stream.getvalue().count("\n")


def test_hostile_evidence_and_a_failed_step_are_told_safely(capsys: Captured) -> None:
    failed_transcript(TranscriptLines(TITLE))
    out = capsys.readouterr().out
    assert "\\x1b[31mred" in out
    assert "✗ failed after 5.0 s" in out


def test_an_output_that_knows_only_ascii_gets_ascii(monkeypatch: Patch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    with choose_view(TITLE) as view:
        transcript = Transcript(TITLE, view)
        with transcript.step("größer"):
            transcript.saw("→")
    assert raw.getvalue().decode() == f"{TITLE}\n   0.0 s  gr\\xf6\\xdfer\n          \\u2192\n          ok 0.0 s\n"


def test_the_summary_has_every_figure_and_counts_what_went_well() -> None:
    text = summary(whole_transcript(), {"report": "out/demo/report.html"})
    assert re.sub(" +", " ", text).splitlines() == [
        *(" agents 5", " calls 50", " bytes 1,204,331", " p50 6.1 ms", " steps 14 of 14 done, in 36.5 s"),
        " report out/demo/report.html",
    ]
    assert "5 of 6 done" in summary(failed_transcript())


class Screen:
    """A terminal of its own for one Python process."""

    def __init__(self, repository: Path, script: str, columns: int = 80, lines: int = 40, **environment: str) -> None:
        self._primary, secondary = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
        path = f"{repository}{os.pathsep}{repository / 'src'}"
        size = {"COLUMNS": str(columns), "LINES": str(lines), "TERM": "xterm-256color", "PYTHONPATH": path}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
            env={**clean, **size, "PYTHONIOENCODING": "utf-8", **environment},
            start_new_session=True,
        )
        os.close(secondary)
        self._seen = b""

    def read_until(self, words: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while words.encode() not in self._seen:
            assert time.monotonic() < deadline, self._seen
            self._seen += os.read(self._primary, 65536)

    def finish(self) -> str:
        while True:
            try:
                received = os.read(self._primary, 65536)
            except OSError:  # Linux ends a terminal that nobody has open with EIO.
                break
            if not received:
                break
            self._seen += received
        os.close(self._primary)
        self.process.wait(timeout=60)
        return self._seen.decode()


def test_the_live_view_keeps_every_step_and_draws_the_picture(repository: Path) -> None:
    screen = Screen(repository, TELL).finish()
    text = ESCAPES.sub("", screen)
    assert all(step.title in text for step in whole_transcript().steps)
    assert re.search(r"✓ 6 nodes and their networks +1\.4 s", text)
    assert "╭ bootstrap ───────╮" in text
    assert "kube-apiserver ╌╌╌✗ webhook" in text
    assert "kube-apiserver → server → agent → webhook" in text
    assert UNREACHABLE.split()[-1] in text
    assert DENIED.split()[-1] in text
    assert "\x1b[1;32m" in screen


def test_a_terminal_without_room_gets_the_steps_alone_and_no_line_is_too_wide(repository: Path) -> None:
    for columns, lines, has_picture in ((60, 40, False), (80, 12, False), (80, 40, True)):
        text = ESCAPES.sub("", Screen(repository, TELL, columns, lines).finish())
        assert "50 calls" in text
        assert ("╭" in text) is has_picture
        assert max(len(line.rstrip()) for line in re.split(r"[\r\n]+", text)) <= columns


def test_a_terminal_without_colour_is_still_live(repository: Path) -> None:
    screen = Screen(repository, TELL, NO_COLOR="1").finish()
    assert HIDE_CURSOR in screen
    assert not re.search(r"\x1b\[(\d+;)*3[0-7]m", screen)


def test_a_terminal_without_utf_8_sees_ascii(repository: Path) -> None:
    text = ESCAPES.sub("", Screen(repository, TELL, PYTHONIOENCODING="ascii").finish())
    assert text.isascii()
    assert "[ok] 6 nodes and their networks" in text


def test_a_dumb_terminal_gets_plain_lines(repository: Path) -> None:
    screen = Screen(repository, TELL, TERM="dumb").finish()
    assert HIDE_CURSOR not in screen
    assert "   0.0 s  6 nodes and their networks" in screen


def test_an_interrupt_gives_the_terminal_back(repository: Path) -> None:
    screen = Screen(repository, WAIT)
    screen.read_until("begun")
    os.killpg(screen.process.pid, signal.SIGINT)
    seen = screen.finish()
    assert seen.rindex(SHOW_CURSOR) > seen.rindex(HIDE_CURSOR)
    assert "✗ for ever" in ESCAPES.sub("", seen)


EMPTY = Picture(nodes=NODES)
BLOCKED = Picture(nodes=NODES, apiserver=True, webhook="worker-0", call=CallResult.UNREACHABLE)
WAITING = replace(BLOCKED, server=True)
CARRIED = replace(WAITING, agents=AGENTS, call=CallResult.ALLOWED)
CUT = replace(CARRIED, server=False, agents=(), production_apiserver=True, production_call=CallResult.ALLOWED)
ALL = (EMPTY, BLOCKED, WAITING, CARRIED, CUT)


def _lines(picture: Picture, glyphs: Glyphs = UNICODE) -> list[str]:
    return draw(picture, "kube-apiserver", glyphs).plain.splitlines()


def _ways(picture: Picture) -> list[str]:
    return [line.plain.strip() for line in routes(picture, "kube-apiserver")]


def test_a_picture_is_a_rectangle_that_fits_a_narrow_terminal() -> None:
    for glyphs in (UNICODE, ASCII):
        for picture in ALL:
            lines = _lines(picture, glyphs)
            assert len(lines) == len(AGENTS) + 2
            assert len({len(line) for line in lines}) == 1
            assert len(lines[0]) <= COLUMNS
            below = [line.plain for line in routes(picture, "kube-apiserver", glyphs)]
            assert all(len(line) <= COLUMNS for line in below)
            assert glyphs is UNICODE or "".join([*lines, *below]).isascii()


def test_each_state_of_the_tunnel_has_its_picture() -> None:
    assert "✗ no route" in _lines(BLOCKED)[1]
    assert _ways(BLOCKED)[0] == "bootstrap   kube-apiserver ╌╌╌✗ webhook                   ✗ unreachable"
    assert "no agent yet" in draw(WAITING, "kube-apiserver").plain
    assert "○ server" not in draw(WAITING, "kube-apiserver").plain
    assert "◀━━━" in draw(CARRIED, "kube-apiserver").plain
    assert "5 agents, mTLS" in draw(CARRIED, "kube-apiserver").plain
    assert draw(CARRIED, "kube-apiserver").plain.count("● agent") == 5
    assert _ways(CARRIED)[0] == "bootstrap   kube-apiserver → server → agent → webhook     ✓ allowed"
    assert "1 agent, mTLS" in draw(replace(CARRIED, agents=("worker-1",)), "kube-apiserver").plain
    assert _ways(CUT) == ["bootstrap   no call", "production  kube-apiserver → webhook                      ✓ allowed"]
    assert "○ server" in draw(CUT, "kube-apiserver").plain
    assert "● stand-in" in draw(BLOCKED, "stand-in").plain
    assert "kube-apiserver" not in draw(CUT, "stand-in").plain
