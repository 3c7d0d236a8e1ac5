"""Who tells a run: plain lines, and the live view."""

import io
import re

import pytest

from umbilical.cli import stage_view
from umbilical.cli.stage_view import LiveView, PlainLines, choose_view, duration
from umbilical.hardway.reporting import Waiting


class _Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _plain(earlier: dict[int, float] | None = None) -> tuple[PlainLines, io.StringIO, _Time]:
    stream, time = io.StringIO(), _Time()
    return PlainLines(earlier or {}, stream, time), stream, time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (42, "42 s"), (61, "1 min 01 s"), (3600, "1 h 00 min"), (7384, "2 h 03 min")],
)
def test_times_are_told_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_stage_says_how_long_it_took_before() -> None:
    view, stream, time = _plain({10: 95.0, 5: 0.2})
    time.now = 12.3
    view.stage(10, "bring up etcd")
    view.stage(5, "make keys")
    assert stream.getvalue().splitlines() == [
        "  12.3 s  10 bring up etcd (took 1 min 35 s before)",
        "  12.3 s  05 make keys",
    ]


def test_a_wait_is_a_line_when_it_changes_and_now_and_then() -> None:
    view, stream, time = _plain()
    for seen in ("refused", "refused", "503"):
        view.waiting(Waiting("the API", seen, 3.0, 600.0))
    time.now += stage_view.HEARTBEAT_SECONDS
    view.waiting(Waiting("the API", "503", 33.0, 600.0, ("the certificate lacks localhost",)))
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines == [
        "not yet (3 of 600 s): the API: refused",
        "not yet (3 of 600 s): the API: 503",
        "not yet (33 of 600 s): the API: 503",
        "hint: the certificate lacks localhost",
    ]


def test_of_the_nodes_only_what_changed_is_told() -> None:
    view, stream, _ = _plain()
    for ready in ("no", "no", "yes"):
        view.table(["m0", "m1"], ["csr", "ready"], {("m0", "csr"): "1", ("m0", "ready"): ready, ("m1", "ready"): "no"})
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines == ["m0: csr 1, ready no", "m1: ready no", "m0: ready yes"]


def test_what_others_say_cannot_move_the_cursor() -> None:
    view, stream, _ = _plain()
    view.saw("evil \x1b[2J text")
    view.waiting(Waiting("x", "\x1b]0;title\x07", 1.0, 2.0))
    assert "\x1b" not in stream.getvalue()


def test_endings_are_told() -> None:
    view, stream, _ = _plain()
    view.step("leave a", "touch a")
    view.ended(1, "done", 61.0)
    view.ended(2, "skipped", 0.1)
    view.ended(3, "undone", 0.0)
    assert [line.strip() for line in stream.getvalue().splitlines()] == [
        "> leave a",
        "done after 1 min 01 s",
        "skipped",
        "undone",
    ]


def test_where_there_is_no_terminal_lines_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    with choose_view() as view:
        assert isinstance(view, PlainLines)
        view.line("about the run")
    assert capsys.readouterr().err == "about the run\n"


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> tuple[LiveView, io.StringIO, _Time]:
    from rich.console import Console

    stream, time = io.StringIO(), _Time()
    console = Console(file=stream, force_terminal=True, width=100, height=30, no_color=True)
    monkeypatch.setattr(stage_view, "_console", lambda: console)
    return LiveView({10: 95.0}, time), stream, time


def _drawn(view: LiveView) -> str:
    with view._console.capture() as captured:
        view._console.print(view._frame())
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get())


def test_the_live_view_shows_the_wait_with_its_deadline_and_the_nodes(
    live: tuple[LiveView, io.StringIO, _Time],
) -> None:
    view, _, time = live
    view.stage(10, "bring up etcd")
    time.now = 12.0
    view.step("start etcd", "systemctl start")
    view.saw("a fact")
    view.waiting(Waiting("etcd", "connection refused", 7.0, 180.0, ("its certificate has one usage only",)))
    view.table(["bootstrap"], ["etcd", "API"], {("bootstrap", "etcd"): "up", ("bootstrap", "API"): "down"})
    drawn = _drawn(view)
    assert "10 bring up etcd  12 s (took 1 min 35 s before)" in drawn
    assert "start etcd" in drawn
    assert "a fact" in drawn
    assert "not yet (7 of 180 s): etcd: connection refused" in drawn
    assert "hint: its certificate has one usage only" in drawn
    assert re.search(r"node\s+etcd\s+API", drawn)
    assert re.search(r"bootstrap\s+up\s+down", drawn)


def test_a_stage_that_ended_stays_on_the_screen_above(live: tuple[LiveView, io.StringIO, _Time]) -> None:
    view, stream, _ = live
    with view:
        view.stage(10, "bring up etcd")
        view.saw("a fact")
        view.ended(10, "done", 12.0)
        view.line("about the run")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "10 bring up etcd  done after 12 s" in shown
    assert "a fact" in shown
    assert "about the run" in shown
    assert _drawn(view).strip() == ""


def test_a_step_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["n\n", "q\n"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: next(answers).strip())
    assert not stage_view.ask_step("join etcd on master-0", "etcdctl member add")
    assert "$ etcdctl member add" in capsys.readouterr().err
