"""What is known of a pod: records, verdicts of probes, back-off, last words, and the status for the API."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tunnel_pki import FolderAuthority

from umbilical.lab.pods.container_worker import MAX_FROM_LOG, MAX_MESSAGE, BackOff, termination_message
from umbilical.lab.pods.probes import PodProbeResult, PodProbeTarget, PodProbeVerdict, run_probe
from umbilical.lab.pods.spec import Container, Execute, HttpGet, LabPod, PodProbe, TcpSocket
from umbilical.lab.pods.status import (
    CREATING,
    INITIALIZING,
    Ended,
    Idle,
    PodRecord,
    Running,
    api_status,
    phase,
    record_of,
    report,
    stamp,
)


def test_containers_wait_until_they_may_begin_and_a_pod_is_ready_when_all_of_them_are() -> None:
    record = record_of(LabPod("p", "ns", "u", (Container("a", "i"), Container("b", "j"))), "10.91.0.10", 5.0)
    assert [(each.name, each.image, each.state) for each in record.containers] == [
        ("a", "i", Idle(CREATING)),
        ("b", "j", Idle(CREATING)),
    ]
    assert not record.is_ready
    record = record_of(LabPod("p", "ns", "u", (Container("a", "i"),), (Container("init", "i"),)), "10.91.0.10", 5.0)
    assert record.containers[0].state == Idle(INITIALIZING)
    assert record.init_containers[0].state == Idle(CREATING)
    record = record_of(LabPod("p", "ns", "u", (Container("a", "i"), Container("b", "j"))), "10.91.0.10", 5.0)
    record.is_initialized = True
    record.containers[0].is_ready = True
    assert not record.is_ready
    record.containers[1].is_ready = True
    assert record.is_ready


POD = LabPod("p", "ns", "uid", (Container("a", "image-a"), Container("b", "image-b")))
NOW = 1_800_000_000.0


def record() -> PodRecord:
    found = record_of(POD, "10.91.0.11", NOW)
    found.addresses = ("10.92.0.2", "fd92::2")
    found.is_initialized = True
    return found


def running() -> PodRecord:
    found = record()
    for number, container in enumerate(found.containers):
        container.state = Running(NOW)
        container.pid = 100 + number
        container.is_ready = container.is_started = True
    return found


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return dict(found)


def test_the_phase_follows_from_all_containers() -> None:
    cases: list[tuple[tuple[Idle | Running | Ended, Idle | Running | Ended], str]] = [
        ((Idle(), Idle()), "Pending"),
        ((Running(NOW), Idle()), "Pending"),
        ((Running(NOW), Running(NOW)), "Running"),
        ((Running(NOW), Ended(1, NOW, NOW)), "Running"),
        ((Ended(0, NOW, NOW), Ended(0, NOW, NOW)), "Succeeded"),
        ((Ended(0, NOW, NOW), Ended(-9, NOW, NOW)), "Failed"),
    ]
    for states, expected in cases:
        found = record()
        for container, state in zip(found.containers, states, strict=True):
            container.state = state
        assert phase(found) == expected
    found = running()
    found.containers[0].state = Idle("CrashLoopBackOff", "back-off 10s")
    found.containers[0].last = Ended(1, NOW, NOW)
    assert phase(found) == "Running"


def test_a_ready_pod_is_told_with_all_its_conditions_and_addresses() -> None:
    status = api_status(running(), {}, NOW)
    told = {each["type"]: each["status"] for each in status["conditions"]}
    assert told == dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")
    assert status["podIP"] == "10.92.0.2"
    assert status["podIPs"] == [{"ip": "10.92.0.2"}, {"ip": "fd92::2"}]
    assert status["hostIP"] == "10.91.0.11"
    assert [each["state"] for each in status["containerStatuses"]] == [{"running": {"startedAt": stamp(NOW)}}] * 2


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = api_status(running(), {}, NOW)
    later = api_status(running(), first, NOW + 100)
    assert condition(later, "Ready")["lastTransitionTime"] == stamp(NOW)
    unready = running()
    unready.containers[0].is_ready = False
    changed = api_status(unready, later, NOW + 200)
    assert condition(changed, "Ready")["lastTransitionTime"] == stamp(NOW + 200)
    assert condition(changed, "Initialized")["lastTransitionTime"] == stamp(NOW)
    assert condition(changed, "Ready")["reason"] == "ContainersNotReady"


def test_what_others_wrote_stays_and_a_status_can_be_sent() -> None:
    previous = {"qosClass": "Burstable", "conditions": [{"type": "Gate", "status": "True"}], "startTime": "earlier"}
    status = api_status(running(), previous, NOW)
    assert status["qosClass"] == "Burstable"
    assert condition(status, "Gate") == {"type": "Gate", "status": "True"}
    assert status["startTime"] == "earlier"
    found = running()
    found.containers[0].last = Ended(1, NOW, NOW)
    found.init_containers = [replace(found.containers[0], name="init")]
    assert json.loads(json.dumps(api_status(found, {}, NOW)))["initContainerStatuses"][0]["name"] == "init"


def test_an_end_shows_as_shells_show_it_and_a_finished_pod_is_not_ready() -> None:
    found = running()
    found.containers[0].last = Ended(-9, NOW, NOW + 1, "words")
    assert (Ended(0, NOW, NOW).reason, Ended(-9, NOW, NOW).reason) == ("Completed", "Error")
    terminated = api_status(found, {}, NOW)["containerStatuses"][0]["lastState"]["terminated"]
    assert (terminated["exitCode"], terminated["signal"], terminated["message"]) == (137, 9, "words")
    for container in found.containers:
        container.state = Ended(0, NOW, NOW)
    assert condition(api_status(found, {}, NOW), "Ready")["status"] == "False"


def test_the_report_tells_of_every_container() -> None:
    found = running()
    found.containers[1].state = Idle("ErrImageNeverPull", "no such image")
    found.containers[1].pid = None
    found.containers[0].last = Ended(-9, NOW, NOW)
    content = json.loads(report("node-1", [found]))
    assert content["node"] == "node-1"
    (pod,) = content["pods"]
    assert pod["containers"][0]["last_exit"] == -9
    assert pod["containers"][1]["waits_for"] == "ErrImageNeverPull: no such image"
    assert pod["address"] == "10.92.0.2"


def test_restarts_wait_twice_as_long_each_time_until_one_ran_for_ten_minutes() -> None:
    back_off = BackOff()
    assert [back_off.ended_after(1.0) for _ in range(8)] == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    back_off = BackOff()
    for _ in range(5):
        back_off.ended_after(1.0)
    assert [back_off.ended_after(600.0), back_off.ended_after(1.0)] == [0.0, 10.0]
    back_off = BackOff(0.1)
    assert [round(back_off.ended_after(0.0), 3) for _ in range(4)] == [0.0, 0.1, 0.2, 0.4]


def test_one_success_is_enough_and_three_failures_are_needed() -> None:
    verdict = PodProbeVerdict(1, 3)
    seen = [verdict.saw(good) for good in (False, False, True, False, False, True, False, False, False, True)]
    assert seen == [None, None, True, True, True, True, True, True, False, True]


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.booleans(), max_size=40))
def test_a_verdict_follows_only_from_enough_answers_of_its_kind(good: int, bad: int, answers: list[bool]) -> None:
    verdict = PodProbeVerdict(good, bad)
    before: bool | None = None
    for index, answer in enumerate(answers):
        after = verdict.saw(answer)
        if after is not before:
            needed = good if after else bad
            assert answers[index + 1 - needed : index + 1] == [after] * needed
        before = after


@pytest.mark.parametrize(
    ("words", "code", "falls_back", "expected"),
    [
        (b"why", 1, True, "why"),
        (b"why", 0, False, "why"),
        (b"", 1, True, "line\nlast"),
        (b"", 1, False, ""),
        (b"", 0, True, ""),
        (None, 1, True, "line\nlast"),
    ],
)
def test_the_log_speaks_for_a_failure_that_said_nothing(
    tmp_path: Path, words: bytes | None, code: int, falls_back: bool, expected: str
) -> None:
    if words is not None:
        (tmp_path / "words").write_bytes(words)
    (tmp_path / "log").write_text("line\nlast\n")
    found = termination_message(tmp_path / "words", tmp_path / "log", code, falls_back_to_log=falls_back)
    assert found == expected


def test_a_message_is_as_long_as_the_api_takes_it(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"\xff" * 10_000)
    (tmp_path / "log").write_bytes(b"x" * 10_000)
    told = termination_message(tmp_path / "words", tmp_path / "log", 1, falls_back_to_log=True)
    assert len(told) == MAX_MESSAGE
    (tmp_path / "words").write_bytes(b"")
    assert len(termination_message(tmp_path / "words", tmp_path / "log", 1, falls_back_to_log=True)) == MAX_FROM_LOG
    assert termination_message(tmp_path / "a", tmp_path / "b", 1, falls_back_to_log=True) == ""


Reply = Callable[[bytes], bytes]
HERE = PodProbeTarget("127.0.0.1", {"named": 0})
PATIENT = 60


@asynccontextmanager
async def listening(reply: Reply | None, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            said = None if reply is None else reply(head)
            writer.write(said or b"")
            await writer.drain()
            if said != b"":  # else it closes
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def answer_to(
    reply: Reply | None, *, path: str = "/healthz", tls: ssl.SSLContext | None = None, seconds: int = PATIENT
) -> PodProbeResult:
    async with listening(reply, tls) as port:
        return await run_probe(PodProbe(HttpGet(port, path, is_tls=tls is not None), timeout_seconds=seconds), HERE)


def saying(line: bytes) -> Reply:
    return lambda _: line + b"\r\n\r\n"


async def test_a_status_from_200_up_to_399_is_good() -> None:
    for line, is_good in (
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.0 204 No Content", True),
        (b"HTTP/1.1 302 Found", True),
        (b"HTTP/1.1 400 Bad Request", False),
        (b"HTTP/1.1 500 Internal Server Error", False),
        (b"HTTP/1.1 100 Continue", False),
        (b"SSH-2.0-OpenSSH", False),
        (b"HTTP/1.1", False),
        (b"HTTP/1.1 many OK", False),
    ):
        assert (await answer_to(saying(line))).is_good is is_good


async def test_the_request_is_what_a_kubelet_sends() -> None:
    heads: list[bytes] = []

    def reply(head: bytes) -> bytes:
        heads.append(head)
        return b"HTTP/1.1 200 OK\r\n\r\n"

    assert (await answer_to(reply, path="/livez?verbose")).is_good
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "GET /livez?verbose HTTP/1.1"
    assert any(line.startswith("User-Agent: kube-probe/") for line in lines)
    assert "Connection: close" in lines


async def test_a_certificate_of_nobody_we_trust_is_good_enough(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    context = authority.server_context(authority.serving("somebody", ["elsewhere.example"]))
    assert (await answer_to(saying(b"HTTP/1.1 200 OK"), tls=context)).is_good


async def test_nobody_silence_and_noise_are_failures() -> None:
    answer = await answer_to(None, seconds=1)
    assert not answer.is_good
    assert "within 1 s" in answer.text
    for said in (b"", b"x" * 200_000):
        assert not (await answer_to(lambda _, said=said: said)).is_good  # type: ignore[misc]
    async with listening(None) as port:
        pass
    for action in (HttpGet(port), TcpSocket(port)):
        assert not (await run_probe(PodProbe(action), HERE)).is_good


async def test_a_connection_is_enough_for_a_tcp_probe_if_its_port_is_known() -> None:
    async with listening(None) as port:
        probe = PodProbe(TcpSocket("named"), timeout_seconds=PATIENT)
        assert (await run_probe(probe, PodProbeTarget("127.0.0.1", {"named": port}))).is_good
    answer = await run_probe(PodProbe(TcpSocket("other")), HERE)
    assert not answer.is_good
    assert "'other'" in answer.text


async def test_a_command_is_judged_by_its_exit_code_and_ended_in_time() -> None:
    for command, is_good in (("true", True), ("false", False), ("no-such-program", False)):
        assert (await run_probe(PodProbe(Execute((command,)), timeout_seconds=PATIENT), HERE)).is_good is is_good
    assert not (await run_probe(PodProbe(Execute(("sh", "-c", "sleep 1000; true"))), HERE)).is_good


async def test_a_probe_ends_when_told_to_although_its_command_ended_in_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the pod waits for its probe for ever."""

    def find_nobody(group: int, number: int) -> None:
        kill(group, number)
        raise ProcessLookupError

    kill = os.killpg
    monkeypatch.setattr(os, "killpg", find_nobody)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(run_probe(PodProbe(Execute(("sleep", "1000")), timeout_seconds=PATIENT), HERE))
        await asyncio.sleep(0.2)
        asking.cancel()
    assert asking.cancelled()
