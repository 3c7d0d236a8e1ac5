"""Journal and state together: whichever of the two a kill left behind, nothing is lost."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.made_up_stages import Clock

from umbilical.hardway.errors import HardwayError
from umbilical.hardway.journal import Kind, read_events
from umbilical.hardway.ledger import Ledger, Notes, look
from umbilical.hardway.state import State, Status, read_state


def _begun(folder: Path) -> Ledger:
    ledger = Ledger(folder, Clock())
    ledger.add(Kind.STAGE_BEGAN, stage=1, inputs={"a": "b"})
    return ledger


def test_what_was_added_is_in_the_next_ones_state(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    again = Ledger(tmp_path, Clock())
    assert again.state == ledger.state == look(tmp_path)
    assert again.state.stage(1).status is Status.RUNNING


def test_a_state_file_that_lags_behind_is_caught_up_from_the_journal(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    state = tmp_path / ".umbilical" / "state.json"
    old = state.read_bytes()
    ledger.add(Kind.STAGE_INTERRUPTED, stage=1)
    state.write_bytes(old)
    assert look(tmp_path).stage(1).status is Status.INTERRUPTED


@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_without_a_readable_state_file_the_journal_tells_everything(tmp_path: Path, content: bytes | None) -> None:
    ledger = _begun(tmp_path)
    state = tmp_path / ".umbilical" / "state.json"
    state.unlink()
    if content is not None:
        state.write_bytes(content)
    assert look(tmp_path) == ledger.state


def test_without_a_journal_the_state_file_tells_everything_and_goes_on(tmp_path: Path) -> None:
    _begun(tmp_path)
    (tmp_path / ".umbilical" / "events.jsonl").unlink()
    ledger = Ledger(tmp_path, Clock())
    ledger.add(Kind.STAGE_INTERRUPTED, stage=1)
    assert look(tmp_path).stage(1).status is Status.INTERRUPTED


def test_with_neither_that_can_be_read_it_is_told(tmp_path: Path) -> None:
    _begun(tmp_path)
    (tmp_path / ".umbilical" / "events.jsonl").unlink()
    (tmp_path / ".umbilical" / "state.json").write_bytes(b"{")
    with pytest.raises(HardwayError):
        look(tmp_path)


def test_a_directory_without_a_record_is_at_the_beginning(tmp_path: Path) -> None:
    assert look(tmp_path) == State()
    assert not (tmp_path / ".umbilical").exists()


def test_what_is_only_told_does_not_touch_the_state_file(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    state = tmp_path / ".umbilical" / "state.json"
    before = state.stat()
    ledger.add(Kind.SAW, stage=1, text="a fact")
    assert state.stat().st_mtime_ns == before.st_mtime_ns
    assert state.stat().st_ino == before.st_ino


def test_the_record_is_for_its_owner_alone(tmp_path: Path) -> None:
    _begun(tmp_path)
    record = tmp_path / ".umbilical"
    assert record.stat().st_mode & 0o777 == 0o700
    assert (record / "state.json").stat().st_mode & 0o777 == 0o600


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
            ledger.add(Kind.NOTED, stage=1, name="told", value="before the interrupt")
    ledger.add(Kind.STAGE_INTERRUPTED, stage=1)
    for state in (ledger.state, look(tmp_path), read_state((tmp_path / ".umbilical" / "state.json").read_bytes())):
        assert state.notes["told"].value == "before the interrupt"
        assert state.stage(1).status is Status.INTERRUPTED
        assert state.number == 3


def test_who_runs_beside_a_stage_may_tell_something_too(tmp_path: Path) -> None:
    ledger = _begun(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda index: ledger.add(Kind.SAW, stage=1, text=str(index)), range(40)))
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
