"""The journal: one event per line, torn lines, foreign bytes."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.made_up_stages import Clock

from umbilical.hardway.errors import HardwayError
from umbilical.hardway.journal import Journal, Kind, Tail, read_events


def _journal(path: Path) -> Journal:
    return Journal(path, Clock())


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    journal = _journal(path)
    journal.add(Kind.STAGE_BEGAN, stage=5, inputs={"pki": "abc"})
    journal.add(Kind.SAW, stage=5, text="zwölf\nKatzen")
    events = read_events(path)
    assert [(event.number, event.kind, event.stage) for event in events] == [(1, "stage-began", 5), (2, "saw", 5)]
    assert events[1].values["text"] == "zwölf\nKatzen"
    assert events == journal.events


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _journal(path).add(Kind.RUN_BEGAN)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_last_line_never_happened_and_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _journal(path).add(Kind.STAGE_BEGAN, stage=1, inputs={})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number":2,"at":"2026')
    assert len(read_events(path)) == 1
    _journal(path).add(Kind.STAGE_BEGAN, stage=2, inputs={})
    assert [event.stage for event in read_events(path)] == [1, 2]
    assert path.read_bytes().startswith(whole)


def test_a_last_line_of_zeros_after_a_power_cut_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _journal(path).add(Kind.RUN_BEGAN)
    path.write_bytes(path.read_bytes() + b"\0" * 40 + b"\n")
    assert len(_journal(path).events) == 1
    assert path.read_bytes().count(b"\n") == 1


def test_a_broken_line_in_the_middle_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    journal = _journal(path)
    for _ in range(3):
        journal.add(Kind.RUN_BEGAN)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"oh no\n" + lines[2])
    with pytest.raises(HardwayError) as told:
        read_events(path)
    assert told.value.code == "UMB721"


def test_numbers_go_on_after_those_of_a_journal_that_was_moved_away(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events.jsonl", Clock(), last=41)
    assert journal.add(Kind.RUN_BEGAN).number == 42


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    journal = _journal(path)
    journal.add(Kind.RUN_BEGAN)
    before, write = path.read_bytes(), os.write

    def full(descriptor: int, content: bytes) -> int:
        write(descriptor, content[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(HardwayError) as told:
            journal.add(Kind.RUN_BEGAN)
    assert told.value.code == "UMB721"
    assert path.read_bytes() == before
    assert journal.add(Kind.RUN_BEGAN).number == 2


def test_a_tail_gives_each_event_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert tail.new() == []
    journal = _journal(path)
    first = journal.add(Kind.RUN_BEGAN)
    second = journal.add(Kind.RUN_ENDED)
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
            after.add(Kind.RUN_BEGAN)
            assert len(read_events(path)) == len(events) + 1
