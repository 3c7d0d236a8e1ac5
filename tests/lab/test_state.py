"""Where a lab keeps its things, and its state on disk: written whole, read with suspicion."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.labs import small

from umbilical.fault import LabError
from umbilical.lab.state import (
    CONTENT,
    LAB_NAME,
    LabDirectory,
    LabState,
    RunnerKind,
    change_state,
    default_directory,
    labs_root,
    list_labs,
    read_state,
    start_time,
    tidy_name,
    write_state,
)


def test_everything_that_a_lab_keeps_lies_in_its_directory_and_its_state_goes_last(tmp_path: Path) -> None:
    directory = LabDirectory(tmp_path)
    places = [
        *(directory.state_file, directory.state_lock, directory.lock_file, directory.control_socket),
        *(directory.node_root("master-0"), directory.log_file("master-0", "podrunner"), directory.keeper_log),
        *(directory.bin, directory.network_namespaces, directory.testbed_file, directory.images),
    ]
    assert {place.relative_to(directory.path).parts[0] for place in places} == set(CONTENT)
    assert CONTENT[-1] == directory.state_file.name


def test_a_directory_is_known_by_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "link").symlink_to("lab")
    monkeypatch.chdir(tmp_path)
    names = ["lab", "link", "./lab/../lab", str(tmp_path / "link")]
    assert {LabDirectory(Path(name)).path for name in names} == {(tmp_path / "lab").resolve()}


def test_labs_lie_in_the_users_state_directory_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local/state/umbilical/labs/lab"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_directory("other") == tmp_path / "state/umbilical/labs/other"
    for name in ("", "..", "a/b", "Lab", "-lab", "lab-", "a b", "x" * 41, "läb", "lab\n"):
        with pytest.raises(LabError, match="UMB810"):
            default_directory(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert list_labs() == []
    for name in ("two", "one"):
        default_directory(name).mkdir(parents=True)
    (labs_root() / "file").touch()
    assert [path.name for path in list_labs()] == ["one", "two"]


@given(st.text())
def test_any_directory_gives_a_lab_a_name_that_it_can_have(text: str) -> None:
    assert LAB_NAME.fullmatch(tidy_name(text))


def test_a_name_that_is_fine_is_kept() -> None:
    tidied = {"lab": "lab", "a" * 40: "a" * 40, "umbilical-lab-x_y": "umbilical-lab-x-y", "Läb 2": "l-b-2"}
    assert {text: tidy_name(text) for text in tidied} == tidied


STATE = LabState(
    name="lab",
    topology=small(),
    runner=RunnerKind.KUBELET,
    is_rootless=True,
    version="0.1.0",
    binaries={"kubectl": "/opt/bin/kubectl"},
    keeper_pid=4321,
    keeper_start=99,
    cgroup="umbilical-lab-1",
    image="/images/ours.tar",
    faults={"link-cut": {"node": "master-0", "rules": ["a"]}},
)


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    directory = LabDirectory(tmp_path)
    assert read_state(directory) is None
    write_state(directory, STATE)
    assert read_state(directory) == STATE
    assert stat.S_IMODE(directory.state_file.stat().st_mode) == 0o600
    assert read_state(LabDirectory(tmp_path / "absent")) is None
    (tmp_path / "file").touch()
    assert read_state(LabDirectory(tmp_path / "file")) is None


def test_a_state_that_may_not_be_read_or_is_gone_is_told(tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    directory = LabDirectory(tmp_path)
    directory.state_file.mkdir()
    with pytest.raises(LabError, match="no permission to read") as refused:
        read_state(directory)
    assert refused.value.code == "UMB815"
    with pytest.raises(LabError, match="UMB815"):
        change_state(LabDirectory(empty), lambda state: state)


def test_a_state_that_is_not_ours_is_refused() -> None:
    change: Mapping[str, object]
    for change in (
        {"format": 2},
        {"name": 5},
        {"version": None},
        {"runner": "docker"},
        {"topology": {}},
        {"topology": None},
        {"is_rootless": "yes"},
        {"keeper_pid": "1"},
        {"keeper_pid": True},
        {"keeper_start": 1.5},
        {"faults": []},
        {"binaries": {"kubectl": 1}},
        {"binaries": []},
        {"unknown": 1},
    ):
        content = {**json.loads(STATE.to_json()), **change}
        with pytest.raises(LabError, match=r"UMB81[15]"):
            LabState.from_json(json.dumps(content).encode())


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_no_bytes_do_more_than_be_refused(content: bytes) -> None:
    with pytest.raises(LabError):
        LabState.from_json(content)


@given(
    st.sampled_from(sorted(json.loads(STATE.to_json()))), st.none() | st.integers() | st.text() | st.lists(st.text())
)
def test_no_value_of_a_field_does_more_than_be_refused(name: str, value: object) -> None:
    content = {**json.loads(STATE.to_json()), name: value}
    try:
        LabState.from_json(json.dumps(content).encode()).is_alive()
    except LabError:
        pass


def test_a_process_is_known_by_when_it_began_and_its_remains_are_not_alive(child: "subprocess.Popen[bytes]") -> None:
    began = start_time(child.pid)
    assert began is not None
    state = replace(STATE, keeper_pid=child.pid, keeper_start=began)
    assert state.is_alive()
    assert not replace(state, keeper_start=began + 1).is_alive()
    assert not replace(state, keeper_pid=None, keeper_start=None).is_alive()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(child.pid) is None
    child.wait()
    assert start_time(child.pid) is None


def test_nobodys_change_is_lost_when_two_change_at_once(tmp_path: Path) -> None:
    directory = LabDirectory(tmp_path)
    write_state(directory, replace(STATE, faults={}))

    def add(name: str) -> None:
        change_state(directory, lambda state: replace(state, faults={**state.faults, name: None}))

    names = [f"fault-{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, names))
    state = read_state(directory)
    assert state is not None
    assert sorted(state.faults) == sorted(names)
