"""What is told goes on, and into the journal no more often than anybody reads it."""

from pathlib import Path

from tests.support.made_up_stages import Clock, Lines

from umbilical.hardway.journal import read_events
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.reporting import Waiting
from umbilical.hardway.telling import TABLE_SECONDS, WAITING_SECONDS, Recorded


class _Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _recorded(folder: Path) -> tuple[Recorded, Lines, _Time]:
    lines, time = Lines(), _Time()
    recorded = Recorded(lines, Ledger(folder, Clock()), time)
    recorded.stage(10, "a title")
    return recorded, lines, time


def _kinds(folder: Path) -> list[str]:
    return [event.kind for event in read_events(folder / ".umbilical" / "events.jsonl")]


def test_facts_reach_both(tmp_path: Path) -> None:
    recorded, lines, _ = _recorded(tmp_path)
    recorded.saw("etcd answers")
    assert lines.lines == ["10 a title", "saw etcd answers"]
    assert _kinds(tmp_path) == ["saw"]


def test_a_wait_is_written_when_something_new_was_seen_or_after_a_while(tmp_path: Path) -> None:
    recorded, lines, time = _recorded(tmp_path)
    for seen in ("refused", "refused", "503", "503"):
        recorded.waiting(Waiting("the API", seen, 1.0, 60.0))
    assert _kinds(tmp_path) == ["waiting", "waiting"]
    time.now += WAITING_SECONDS
    recorded.waiting(Waiting("the API", "503", 11.0, 60.0, ("a hint",)))
    event = read_events(tmp_path / ".umbilical" / "events.jsonl")[-1]
    assert (event.values["seen"], event.values["hints"], event.stage) == ("503", ["a hint"], 10)
    assert len(lines.waits) == 5


def test_a_table_is_written_when_it_changed_and_not_too_often(tmp_path: Path) -> None:
    recorded, lines, time = _recorded(tmp_path)
    for text in ("no", "no", "yes"):
        recorded.table(["master-0"], ["ready"], {("master-0", "ready"): text})
    assert _kinds(tmp_path) == ["table"]
    time.now += TABLE_SECONDS
    recorded.table(["master-0"], ["ready"], {("master-0", "ready"): "yes"})
    assert _kinds(tmp_path) == ["table", "table"]
    assert len(lines.tables) == 4


def test_a_long_text_is_cut_in_the_journal_only(tmp_path: Path) -> None:
    recorded, lines, _ = _recorded(tmp_path)
    recorded.saw("x" * 100_000)
    assert (tmp_path / ".umbilical" / "events.jsonl").stat().st_size < 3000
    assert len(lines.lines[-1]) > 100_000
