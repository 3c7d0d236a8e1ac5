"""What a kubelet says of its pods, and its log files: read, found, put in order."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.kubelet.pod_list import find_logs, matches, parse_answer, parse_log, read_pods
from umbilical.lab.runner import PodStatus
from umbilical.lab.waiting import NotYet

ADDRESS = "10.91.0.11"


def listed(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pod = {
        "metadata": {"namespace": "lab", "name": "talker-x7k2p"},
        "spec": {"containers": [{"name": "talker", "image": "localhost/x:lab"}], **spec},
        "status": status,
    }
    return {"kind": "PodList", "items": [pod]}


def only(document: dict[str, Any], pids: dict[str, int] | None = None) -> PodStatus:
    (pod,) = read_pods("master-0", ADDRESS, document, pids or {})
    return pod


def test_an_answer_is_a_head_and_a_list() -> None:
    assert parse_answer(b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"items": []}') == {"items": []}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 200 OK\r\n",
        b'HTTP/1.0 200 OK\r\n\r\n{"items": [',
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b"HTTP/1.0 503 Service Unavailable\r\n\r\n{}",
        b"\xff\r\n\r\n{}",
    ],
)
def test_an_answer_that_is_no_list_is_asked_for_again(answer: bytes) -> None:
    with pytest.raises(NotYet):
        parse_answer(answer)


@given(st.binary(max_size=100))
def test_any_answer_is_read_or_asked_for_again(answer: bytes) -> None:
    with contextlib.suppress(NotYet):
        parse_answer(b"HTTP/1.0 200 OK\r\n\r\n" + answer)


def test_a_running_container_has_a_pid_and_is_ready_when_the_kubelet_says_so() -> None:
    status = {"name": "talker", "containerID": "containerd://abc", "ready": True, "restartCount": 2}
    pod = only(listed({"podIP": "10.92.0.2", "containerStatuses": [status]}), {"abc": 77})
    assert (pod.namespace, pod.name, pod.node, pod.address) == ("lab", "talker-x7k2p", "master-0", "10.92.0.2")
    (container,) = pod.containers
    assert (container.pid, container.restarts, container.is_ready, container.last_exit) == (77, 2, True, None)
    assert pod.is_ready


def test_a_container_without_a_process_is_not_ready_whatever_was_last_heard() -> None:
    status = {"name": "talker", "containerID": "containerd://abc", "ready": True}
    pod = only(listed({"containerStatuses": [status]}))
    assert not pod.is_running
    assert not pod.is_ready


def test_a_pod_that_nothing_is_known_of_yet_has_its_containers_all_the_same() -> None:
    pod = only(listed({}))
    assert [container.name for container in pod.containers] == ["talker"]
    assert pod.address == ""


def test_a_pod_in_the_nodes_network_has_the_nodes_address() -> None:
    assert only(listed({}, hostNetwork=True)).address == ADDRESS


def test_an_exit_by_a_signal_is_negative() -> None:
    for code, seen in ((137, -9), (143, -15), (1, 1), (0, 0), (255, 255), (128, 128)):
        status = {"name": "talker", "lastState": {"terminated": {"exitCode": code}}}
        assert only(listed({"containerStatuses": [status]})).containers[0].last_exit == seen


def test_a_list_of_nothing_is_empty() -> None:
    assert read_pods("master-0", ADDRESS, {"items": None}, {}) == []


def test_a_name_may_lack_what_was_generated() -> None:
    pod = only(listed({}))
    assert matches(pod, "talker")
    assert matches(pod, "talker-x7k2p")
    assert not matches(pod, "talk")


def test_lines_that_were_cut_are_joined() -> None:
    content = (
        b"2026-11-15T17:27:50.1Z stdout F one\n"
        b"2026-11-15T17:27:50.2Z stderr P tw\n"
        b"2026-11-15T17:27:50.3Z stderr F o\n"
        b"2026-11-15T17:27:50.4Z stdout F \n"
        b"2026-11-15T17:27:50.5Z stdout F th"
    )
    assert parse_log(content) == "one\ntwo\n\nth\n"


@given(st.binary(max_size=200))
def test_any_bytes_can_be_in_a_log_file(content: bytes) -> None:
    assert isinstance(parse_log(content), str)


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20), max_size=5))
def test_what_was_printed_is_what_is_read(lines: list[str]) -> None:
    wrapped = b"".join(b"2026-11-15T17:27:50Z stdout F " + line.encode() + b"\n" for line in lines)
    assert parse_log(wrapped) == "".join(f"{line}\n" for line in lines)


def log_file(logs: Path, folder: str, name: str, seconds: int) -> Path:
    path = logs / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(logs / folder, (seconds, seconds))
    return path


def test_log_files_are_found_oldest_first(tmp_path: Path) -> None:
    old = log_file(tmp_path, "lab_talker-a1b2c_uid-9", "talker/0.log", 100)
    restarted = [
        log_file(tmp_path, "lab_talker-x7k2p_uid-1", f"talker/{name}", 200)
        for name in ("0.log", "2.log.20261115-120000", "2.log", "10.log")
    ]
    log_file(tmp_path, "lab_talker-x7k2p_uid-1", "other/0.log", 200)
    log_file(tmp_path, "lab_talker-x7k2p_uid-1", "talker/2.log.20261115-110000.gz", 200)
    log_file(tmp_path, "lab_talkative_uid-2", "talker/0.log", 200)
    log_file(tmp_path, "other_talker-x7k2p_uid-3", "talker/0.log", 200)
    assert find_logs(tmp_path, "lab", "talker", "talker") == [old, *restarted]
    assert find_logs(tmp_path, "lab", "talker-x7k2p", "talker") == restarted
    assert find_logs(tmp_path / "nowhere", "lab", "talker", "talker") == []
