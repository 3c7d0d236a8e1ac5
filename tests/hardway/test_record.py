"""The record of a run: events in the journal, the ledger, and reports."""

import errno
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.made_up_stages import Clock, Lines, Time

from umbilical.fault import HardwayError
from umbilical.hardway.journal import EventKind, Journal, Tail, read_events
from umbilical.hardway.ledger import TABLE_SECONDS, WAITING_SECONDS, Ledger, Notes, RecordingReporter, read_record
from umbilical.hardway.state import RunState, StageStatus, read_state
from umbilical.hardway.waiting import WaitProgress


def _journal(path: Path) -> Journal:
    return Journal(path, Clock())


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    journal = _journal(path)
    journal.add(EventKind.STAGE_BEGAN, stage=5, inputs={"pki": "abc"})
    journal.add(EventKind.SAW, stage=5, text="zwölf\nKatzen")
    events = read_events(path)
    assert [(event.number, event.kind, event.stage) for event in events] == [(1, "stage-began", 5), (2, "saw", 5)]
    assert events[1].values["text"] == "zwölf\nKatzen"
    assert events == journal.events


def test_a_torn_last_line_never_happened_and_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _journal(path).add(EventKind.STAGE_BEGAN, stage=1, inputs={})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number":2,"at":"2026')
    assert len(read_events(path)) == 1
    _journal(path).add(EventKind.STAGE_BEGAN, stage=2, inputs={})
    assert [event.stage for event in read_events(path)] == [1, 2]
    assert path.read_bytes().startswith(whole)


def test_a_last_line_of_zeros_after_a_power_cut_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _journal(path).add(EventKind.RUN_BEGAN)
    path.write_bytes(path.read_bytes() + b"\0" * 40 + b"\n")
    assert len(_journal(path).events) == 1
    assert path.read_bytes().count(b"\n") == 1


def test_a_broken_line_in_the_middle_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    journal = _journal(path)
    for _ in range(3):
        journal.add(EventKind.RUN_BEGAN)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"oh no\n" + lines[2])
    with pytest.raises(HardwayError, match="UMB721"):
        read_events(path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    journal = _journal(path)
    journal.add(EventKind.RUN_BEGAN)
    before, write = path.read_bytes(), os.write

    def full(descriptor: int, content: bytes) -> int:
        write(descriptor, content[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(HardwayError) as told:
            journal.add(EventKind.RUN_BEGAN)
    assert told.value.code == "UMB721"
    assert path.read_bytes() == before
    assert journal.add(EventKind.RUN_BEGAN).number == 2


def test_a_tail_gives_each_event_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert tail.new() == []
    journal = _journal(path)
    first = journal.add(EventKind.RUN_BEGAN)
    second = journal.add(EventKind.RUN_ENDED)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert tail.new() == [first]
    path.write_bytes(whole)
    assert tail.new() == [second]
    assert tail.new() == []


@example([b"\r\n"])
@given(st.lists(st.one_of(st.binary(max_size=80), st.just(b'{"number":1,"at":"","event":"saw"}')), max_size=6))
def test_whatever_lies_there_is_whole_events_or_a_told_fault(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.write_bytes(b"\n".join(lines))
        try:
            events = read_events(path)
        except HardwayError:
            pass
        else:
            assert all(event.kind for event in events)
            # What was read is what the next writer keeps, and it goes on from there.
            after = _journal(path)
            assert after.events == events
            after.add(EventKind.RUN_BEGAN)
            assert len(read_events(path)) == len(events) + 1


def _begun(folder: Path) -> Ledger:
    ledger = Ledger(folder, Clock())
    ledger.add(EventKind.STAGE_BEGAN, stage=1, inputs={"a": "b"})
    return ledger


def test_a_state_file_that_lags_behind_is_caught_up_from_the_journal(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    state = tmp_path / ".umbilical" / "state.json"
    old = state.read_bytes()
    ledger.add(EventKind.STAGE_INTERRUPTED, stage=1)
    state.write_bytes(old)
    assert read_record(tmp_path).stage(1).status is StageStatus.INTERRUPTED


@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_without_a_readable_state_file_the_journal_tells_everything(tmp_path: Path, content: bytes | None) -> None:
    ledger = _begun(tmp_path)
    state = tmp_path / ".umbilical" / "state.json"
    state.unlink()
    if content is not None:
        state.write_bytes(content)
    assert read_record(tmp_path) == ledger.state


def test_without_a_journal_the_state_file_tells_everything_and_goes_on(tmp_path: Path) -> None:
    _begun(tmp_path)
    (tmp_path / ".umbilical" / "events.jsonl").unlink()
    ledger = Ledger(tmp_path, Clock())
    ledger.add(EventKind.STAGE_INTERRUPTED, stage=1)
    assert read_record(tmp_path).stage(1).status is StageStatus.INTERRUPTED


def test_with_neither_that_can_be_read_it_is_told(tmp_path: Path) -> None:
    _begun(tmp_path)
    (tmp_path / ".umbilical" / "events.jsonl").unlink()
    (tmp_path / ".umbilical" / "state.json").write_bytes(b"{")
    with pytest.raises(HardwayError):
        read_record(tmp_path)


def test_a_directory_without_a_record_is_at_the_beginning(tmp_path: Path) -> None:
    assert read_record(tmp_path) == RunState()
    assert not (tmp_path / ".umbilical").exists()


def test_what_is_only_told_does_not_touch_the_state_file(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    state = tmp_path / ".umbilical" / "state.json"
    before = state.stat()
    ledger.add(EventKind.SAW, stage=1, text="a fact")
    assert state.stat().st_mtime_ns == before.st_mtime_ns
    assert state.stat().st_ino == before.st_ino


def test_the_record_is_for_its_owner_alone(tmp_path: Path) -> None:
    _begun(tmp_path)
    record = tmp_path / ".umbilical"
    assert record.stat().st_mode & 0o777 == 0o700
    assert {(record / name).stat().st_mode & 0o777 for name in ("state.json", "events.jsonl")} == {0o600}


@pytest.mark.parametrize("function", ["fsync", "close"])
def test_an_interrupt_between_writing_and_remembering_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    ledger = _begun(tmp_path)

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            ledger.add(EventKind.NOTED, stage=1, name="told", value="before the interrupt")
    ledger.add(EventKind.STAGE_INTERRUPTED, stage=1)
    for state in (
        ledger.state,
        read_record(tmp_path),
        read_state((tmp_path / ".umbilical" / "state.json").read_bytes()),
    ):
        assert state.notes["told"].value == "before the interrupt"
        assert state.stage(1).status is StageStatus.INTERRUPTED
        assert state.number == 3


def test_who_runs_beside_a_stage_may_tell_something_too(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda index: ledger.add(EventKind.SAW, stage=1, text=str(index)), range(40)))
    assert sorted(numbers) == list(range(2, 42))
    assert [event.number for event in read_events(tmp_path / ".umbilical" / "events.jsonl")] == list(range(1, 42))


def test_notes_are_on_disk_as_soon_as_they_are_set(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    notes = Notes(ledger)
    notes.stage = 1
    notes["member"] = ["a"]
    kept = read_state((tmp_path / ".umbilical" / "state.json").read_bytes()).notes["member"]
    assert (kept.stage, kept.value) == (1, ["a"])
    number = ledger.state.number
    notes["member"] = ["a"]
    assert ledger.state.number == number
    del notes["member"]
    assert dict(notes) == {}
    with pytest.raises(KeyError):
        del notes["member"]


def _recorded(folder: Path) -> tuple[RecordingReporter, Lines, Time]:
    lines, time = Lines(), Time()
    recorded = RecordingReporter(lines, Ledger(folder, Clock()), time)
    recorded.stage(10, "a title")
    return recorded, lines, time


def _kinds(folder: Path) -> list[str]:
    return [event.kind for event in read_events(folder / ".umbilical" / "events.jsonl")]


def test_a_wait_is_written_when_something_new_was_seen_or_after_a_while(tmp_path: Path) -> None:
    recorded, lines, time = _recorded(tmp_path)
    for seen in ("refused", "refused", "503", "503"):
        recorded.waiting(WaitProgress("the API", seen, 1.0, 60.0))
    assert _kinds(tmp_path) == ["waiting", "waiting"]
    time.now += WAITING_SECONDS
    recorded.waiting(WaitProgress("the API", "503", 11.0, 60.0, ("a hint",)))
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


def test_facts_reach_both_and_a_long_text_is_cut_in_the_journal_only(tmp_path: Path) -> None:
    recorded, lines, _ = _recorded(tmp_path)
    recorded.saw("x" * 100_000)
    assert _kinds(tmp_path) == ["saw"]
    assert (tmp_path / ".umbilical" / "events.jsonl").stat().st_size < 3000
    assert lines.lines == ["10 a title", "saw " + "x" * 100_000]
