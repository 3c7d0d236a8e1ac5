"""What a directory keeps: the state of stages, a lock, and the identity."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from functools import cache
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.inputs import ClusterIdentity
from umbilical.hardway.journal import EventKind, JournalEvent
from umbilical.hardway.ledger import holder, locked
from umbilical.hardway.stage import Undo
from umbilical.hardway.state import RunState, StageStatus, read_state
from umbilical.hardway.workspace import draw_identity, draw_password, forget_identity, keep_identity, read_identity

_FAILURE = {"code": "UMB725", "what": "a", "why": "b", "next": "c"}
_LIFE = (
    (EventKind.STAGE_BEGAN, {"stage": 2, "inputs": {"infrastructure": "abc"}}),
    (
        EventKind.STEP_BEGAN,
        {"stage": 2, "title": "x", "command": "y", "undo": {"name": "destroy-machines", "values": {}}},
    ),
    (EventKind.STEP_ENDED, {"stage": 2, "title": "x"}),
    (EventKind.NOTED, {"stage": 2, "name": "pid", "value": 7}),
    (EventKind.STAGE_DONE, {"stage": 2, "outputs": {"f": "h"}, "checks": [{"id": "A"}], "seconds": 1.5}),
)
_KEYS = st.sampled_from(["format", "number", "stages", "notes", "01", "status"])
_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
)
_HOLDING = """
import sys, time
from pathlib import Path
from umbilical.hardway.ledger import locked
with locked(Path(sys.argv[1]), "umbilical stage run", "08:00"):
    print("held", flush=True)
    time.sleep(300)
"""


def _events(*happened: tuple[EventKind, dict[str, object]]) -> list[JournalEvent]:
    return [JournalEvent(index + 1, f"t{index}", kind.value, values) for index, (kind, values) in enumerate(happened)]


def _sum(*happened: tuple[EventKind, dict[str, object]]) -> RunState:
    return RunState().add_all(_events(*happened))


def test_a_whole_life_adds_up() -> None:
    record = _sum(*_LIFE).stage(2)
    assert record.status is StageStatus.DONE
    assert (record.inputs, record.outputs, record.seconds) == ({"infrastructure": "abc"}, {"f": "h"}, 1.5)
    assert [one.undo for one in record.undos] == [Undo("destroy-machines")]
    assert (record.began, record.ended) == ("t0", "t4")


def test_events_that_are_in_it_already_are_not_added_again() -> None:
    state = _sum(*_LIFE)
    assert state.add_all(_events(*_LIFE)) == state


def test_a_repeated_step_has_its_inverse_once() -> None:
    state = _sum(*_LIFE[:2], *_LIFE[:2])
    assert len(state.stage(2).undos) == 1
    assert state.stage(2).undos[0].number == 2


def test_a_failure_is_forgotten_when_the_stage_is_begun_again() -> None:
    failed = (EventKind.STAGE_FAILED, {"stage": 2, "failure": _FAILURE, "checks": []})
    state = _sum(_LIFE[0], failed)
    assert state.stage(2).failure == _FAILURE
    assert _sum(_LIFE[0], failed, _LIFE[0]).stage(2).failure is None


def test_what_is_undone_is_pending_again_and_its_notes_are_gone() -> None:
    state = _sum(*_LIFE, (EventKind.UNDO_ENDED, {"stage": 2, "undo": 2}), (EventKind.STAGE_UNDONE, {"stage": 2}))
    assert state.stage(2).status is StageStatus.PENDING
    assert state.stage(2).undos == ()
    assert state.stage(2).seconds == 1.5
    assert state.notes == {}


def test_a_point_of_no_return_says_why() -> None:
    undo = {"name": "never", "values": {"why": "the member is gone"}}
    state = _sum(_LIFE[0], (EventKind.STEP_BEGAN, {"stage": 2, "title": "x", "command": "", "undo": undo}))
    assert state.stage(2).no_return == "the member is gone"
    assert _sum(*_LIFE).stage(2).no_return is None


def test_events_of_a_later_release_only_count() -> None:
    state = RunState().add(JournalEvent(9, "t", "stage-admired", {"stage": 2}))
    assert state == RunState(number=9)


def test_it_comes_back_from_disk_as_it_was() -> None:
    state = _sum(*_LIFE, (EventKind.STAGE_FAILED, {"stage": 3, "failure": _FAILURE}))
    assert read_state(state.to_json()) == state
    assert json.loads(state.to_json())["stages"]["02"]["status"] == "done"


def test_another_format_is_refused() -> None:
    content = json.loads(RunState().to_json())
    content["format"] = 2
    with pytest.raises(HardwayError) as told:
        read_state(json.dumps(content).encode())
    assert told.value.code == "UMB722"
    assert "format is 2" in told.value.why


@given(st.one_of(st.binary(max_size=60), _VALUES.map(lambda value: json.dumps(value).encode())))
def test_whatever_lies_there_is_a_state_or_a_told_fault(content: bytes) -> None:
    try:
        state = read_state(content)
    except HardwayError:
        pass
    else:
        assert read_state(state.to_json()) == state


def _start(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", _HOLDING, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_who_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    with _start(tmp_path) as process:
        try:
            with pytest.raises(HardwayError) as told, locked(tmp_path, "me", "09:00"):
                pass
            assert told.value.code == "UMB720"
            assert f"`umbilical stage run` (pid {process.pid})" in told.value.why
            found = holder(tmp_path)
            assert found is not None
            assert found.pid == process.pid
        finally:
            process.kill()


def test_a_directory_that_cannot_be_written_is_told_and_no_fault_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", Path("/proc/self")):
        with pytest.raises(HardwayError) as told, locked(folder, "me", "09:00"):
            pass
        assert told.value.code == "UMB721"
        assert told.value.what == f"could not write {folder}/.umbilical/lock"


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with _start(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
    assert holder(tmp_path) is None
    with locked(tmp_path, "me", "09:00"):
        pass


def test_it_can_be_taken_again_after_it_was_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path, "me", "09:00"):
            found = holder(tmp_path)
            assert found is not None
            assert found.command == "me"
    assert holder(tmp_path) is None


def test_a_directory_that_nobody_worked_on_has_no_holder(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert not (tmp_path / ".umbilical").exists()


def test_a_program_that_outlives_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path, "me", "09:00"):
        child = subprocess.Popen(["sleep", "300"], close_fds=False)
    try:
        assert holder(tmp_path) is None
    finally:
        child.kill()
        child.wait()


@cache
def drawn() -> ClusterIdentity:
    return draw_identity("ocp4")


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    identity = drawn()
    path = keep_identity(tmp_path, identity)
    assert read_identity(tmp_path) == identity
    assert path == tmp_path / ".umbilical" / "identity.json"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_forgotten_is_gone_and_forgetting_twice_is_fine(tmp_path: Path) -> None:
    keep_identity(tmp_path, drawn())
    for _ in range(2):
        forget_identity(tmp_path)
        assert read_identity(tmp_path) is None


def test_each_part_has_its_form() -> None:
    identity = drawn()
    assert uuid.UUID(identity.cluster_id).version == 4
    assert re.fullmatch(r"ocp4-[a-z0-9]{5}", identity.infrastructure_name)
    assert bcrypt.checkpw(identity.kubeadmin_password.encode(), identity.kubeadmin_hash.encode())


def test_a_password_can_be_read_aloud() -> None:
    passwords = {draw_password() for _ in range(200)}
    assert len(passwords) == 200
    for password in passwords:
        assert re.fullmatch(r"([A-Za-z0-9]{5}-){3}[A-Za-z0-9]{5}", password)
        assert not set("01lO") & set(password)


def test_a_long_name_is_cut_to_what_platforms_take() -> None:
    name = draw_identity("a-very-long-name-of-a-c-" + "x" * 30).infrastructure_name
    assert len(name) <= 27
    assert "--" not in name


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cluster_id": 5}', b"\xff", b"[" * 100_000])
def test_a_damaged_one_is_refused_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = keep_identity(tmp_path, drawn())
    path.write_bytes(content)
    with pytest.raises(HardwayError, match="UMB713"):
        read_identity(tmp_path)
    assert path.read_bytes() == content
