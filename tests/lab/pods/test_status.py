"""Records as the API and the lab want to hear of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from umbilical.lab.pods.records import Ended, Idle, PodRecord, Running, record_of
from umbilical.lab.pods.spec import Container, Pod
from umbilical.lab.pods.status import api_status, phase, report, stamp

POD = Pod("p", "ns", "uid", (Container("a", "image-a"), Container("b", "image-b")))
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


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((Idle(), Idle()), "Pending"),
        ((Running(NOW), Idle()), "Pending"),
        ((Running(NOW), Running(NOW)), "Running"),
        ((Running(NOW), Ended(1, NOW, NOW)), "Running"),
        ((Ended(0, NOW, NOW), Ended(0, NOW, NOW)), "Succeeded"),
        ((Ended(0, NOW, NOW), Ended(-9, NOW, NOW)), "Failed"),
    ],
)
def test_the_phase_follows_from_all_containers(states: tuple[Any, Any], expected: str) -> None:
    found = record()
    for container, state in zip(found.containers, states, strict=True):
        container.state = state
    assert phase(found) == expected


def test_a_container_in_its_crash_loop_keeps_the_pod_running() -> None:
    found = running()
    found.containers[0].state = Idle("CrashLoopBackOff", "back-off 10s")
    found.containers[0].last = Ended(1, NOW, NOW)
    assert phase(found) == "Running"


def test_a_ready_pod_is_told_with_all_its_conditions_and_addresses() -> None:
    status = api_status(running(), {}, NOW)
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
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


def test_what_others_wrote_stays() -> None:
    previous = {"qosClass": "Burstable", "conditions": [{"type": "Gate", "status": "True"}], "startTime": "earlier"}
    status = api_status(running(), previous, NOW)
    assert status["qosClass"] == "Burstable"
    assert condition(status, "Gate") == {"type": "Gate", "status": "True"}
    assert status["startTime"] == "earlier"


def test_an_end_by_signal_has_the_exit_code_of_shells() -> None:
    found = running()
    found.containers[0].last = Ended(-9, NOW, NOW + 1, "words")
    terminated = api_status(found, {}, NOW)["containerStatuses"][0]["lastState"]["terminated"]
    assert (terminated["exitCode"], terminated["signal"], terminated["message"]) == (137, 9, "words")


def test_a_finished_pod_is_not_ready() -> None:
    found = running()
    for container in found.containers:
        container.state = Ended(0, NOW, NOW)
    assert condition(api_status(found, {}, NOW), "Ready")["status"] == "False"


def test_a_status_can_be_sent() -> None:
    found = running()
    found.containers[0].last = Ended(1, NOW, NOW)
    found.init_containers = [replace(found.containers[0], name="init")]
    assert json.loads(json.dumps(api_status(found, {}, NOW)))["initContainerStatuses"][0]["name"] == "init"


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
