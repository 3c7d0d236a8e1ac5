"""State of the pods that run here, and its form as an API status or as the runner's report.

Only the pods' workers change records.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from umbilical.lab.pods.spec import LabPod

CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True)
class Idle:
    """The container does not run and waits for something."""

    reason: str = CREATING
    message: str = ""


@dataclass(frozen=True)
class Running:
    since: float
    """Seconds since the epoch, as everywhere here."""


@dataclass(frozen=True)
class Ended:
    exit_code: int
    """Negative: number of the signal."""
    since: float
    until: float
    message: str = ""

    @property
    def reason(self) -> str:
        return "Completed" if self.exit_code == 0 else "Error"


@dataclass
class ContainerRecord:
    name: str
    image: str
    state: Idle | Running | Ended = Idle()
    """Ended only if there is no restart."""
    last: Ended | None = None
    """Previous run."""
    restarts: int = 0
    pid: int | None = None
    is_started: bool = False
    """The startup probe, if any, succeeded in this run."""
    is_ready: bool = False


@dataclass
class PodRecord:
    pod: LabPod
    node_ip: str
    since: float
    addresses: tuple[str, ...] = ()
    is_initialized: bool = False
    containers: list[ContainerRecord] = field(default_factory=list)
    init_containers: list[ContainerRecord] = field(default_factory=list)
    trouble: str = ""
    """Why the pod does not start, in one line."""

    @property
    def is_ready(self) -> bool:
        return self.is_initialized and all(container.is_ready for container in self.containers)


def record_of(pod: LabPod, node_ip: str, now: float) -> PodRecord:
    containers, init_containers = (
        [ContainerRecord(container.name, container.image, Idle(reason)) for container in found]
        for found, reason in (
            (pod.containers, INITIALIZING if pod.init_containers else CREATING),
            (pod.init_containers, CREATING),
        )
    )
    return PodRecord(pod, node_ip, now, containers=containers, init_containers=init_containers)


RUNTIME: Final = "process"


def report(node: str, records: Iterable[PodRecord]) -> bytes:
    """Return the content of the file that `process_runner` reads."""
    return json.dumps({"node": node, "pods": [_pod(record) for record in records]}, indent=1).encode()


def _pod(record: PodRecord) -> dict[str, Any]:
    return {
        "namespace": record.pod.namespace,
        "name": record.pod.name,
        "uid": record.pod.uid,
        "address": record.addresses[0] if record.addresses else "",
        "phase": phase(record),
        "trouble": record.trouble,
        "containers": [_container(container) for container in record.containers],
    }


def _container(record: ContainerRecord) -> dict[str, Any]:
    state = record.state
    ended = state if isinstance(state, Ended) else record.last
    return {
        "name": record.name,
        "image": record.image,
        "pid": record.pid,
        "restarts": record.restarts,
        "ready": record.is_ready,
        "last_exit": None if ended is None else ended.exit_code,
        "waits_for": f"{state.reason}: {state.message}".removesuffix(": ") if isinstance(state, Idle) else "",
    }


def phase(record: PodRecord) -> str:
    if any(isinstance(each.state, Ended) and each.state.exit_code != 0 for each in record.init_containers):
        return "Failed"
    codes = [each.state.exit_code for each in record.containers if isinstance(each.state, Ended)]
    if len(codes) == len(record.containers):
        return "Failed" if any(codes) else "Succeeded"
    has_run = all(isinstance(each.state, Running | Ended) or each.last is not None for each in record.containers)
    return "Running" if has_run else "Pending"


def api_status(record: PodRecord, previous: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a v1 PodStatus; fields of others in the previous one stay."""
    addresses = record.addresses
    ours = {
        "phase": phase(record),
        "conditions": _conditions(record, previous.get("conditions"), now),
        "hostIP": record.node_ip,
        "hostIPs": [{"ip": record.node_ip}],
        "startTime": previous.get("startTime") or stamp(record.since),
        "containerStatuses": [_container_status(each, record) for each in record.containers],
    }
    if addresses:
        ours |= {"podIP": addresses[0], "podIPs": [{"ip": address} for address in addresses]}
    if record.init_containers:
        ours["initContainerStatuses"] = [_container_status(each, record) for each in record.init_containers]
    return {**previous, **ours}


def _conditions(record: PodRecord, previous: Any, now: float) -> list[dict[str, Any]]:
    known = (
        {each.get("type"): each for each in previous if isinstance(each, dict)} if isinstance(previous, list) else {}
    )
    is_over = phase(record) in ("Succeeded", "Failed")
    wanted = {
        "PodScheduled": True,
        "Initialized": record.is_initialized,
        "ContainersReady": record.is_ready and not is_over,
        "Ready": record.is_ready and not is_over,
    }
    conditions = dict(known)
    for kind, is_true in wanted.items():
        conditions[kind] = _condition(kind, is_true, known.get(kind), record, now)
    return list(conditions.values())


def _condition(kind: str, is_true: bool, known: dict[str, Any] | None, record: PodRecord, now: float) -> dict[str, Any]:
    value = "True" if is_true else "False"
    unchanged = known is not None and known.get("status") == value
    condition = {
        **(known or {}),
        "type": kind,
        "status": value,
        "lastTransitionTime": known["lastTransitionTime"] if known and unchanged else stamp(now),
    }
    condition.pop("reason", None)
    condition.pop("message", None)
    if not is_true:
        condition |= {"reason": "ContainersNotReady", "message": record.trouble or "containers are not ready"}
    return condition


def _container_status(record: ContainerRecord, pod: PodRecord) -> dict[str, Any]:
    identifier = f"{RUNTIME}://{pod.pod.uid}/{record.name}/{record.restarts}"
    has_run = not isinstance(record.state, Idle) or record.last is not None
    status = {
        "name": record.name,
        "image": record.image,
        "imageID": record.image,
        "containerID": identifier if has_run else "",
        "ready": record.is_ready,
        "started": record.is_started,
        "restartCount": record.restarts,
        "state": _state(record.state, identifier),
    }
    if record.last is not None:
        status["lastState"] = _state(record.last, identifier)
    return status


def _state(state: Idle | Running | Ended, identifier: str) -> dict[str, Any]:
    if isinstance(state, Idle):
        return {"waiting": {"reason": state.reason} | ({"message": state.message} if state.message else {})}
    if isinstance(state, Running):
        return {"running": {"startedAt": stamp(state.since)}}
    is_signal = state.exit_code < 0
    return {
        "terminated": {
            "exitCode": 128 - state.exit_code if is_signal else state.exit_code,
            "reason": state.reason,
            "startedAt": stamp(state.since),
            "finishedAt": stamp(state.until),
            "containerID": identifier,
        }
        | ({"signal": -state.exit_code} if is_signal else {})
        | ({"message": state.message} if state.message else {})
    }


def stamp(moment: float) -> str:
    """Format a Kubernetes Time: whole seconds, Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
