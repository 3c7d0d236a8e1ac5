"""What the kubelet says of its pods, and the log files that it keeps of them."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from umbilical.lab.runner import ContainerStatus, PodStatus
from umbilical.lab.waiting import NotYet

_RUNTIME: Final = "containerd://"
_LINE: Final = re.compile(rb"\S+ (?:stdout|stderr) ([FP])(?: (.*))?", re.DOTALL)
# Beyond the 128 signals' numbers a shell's habit: the code is 128 and the signal.
_SIGNALLED: Final = 128
_HIGHEST_SIGNAL: Final = 64


def parse_answer(answer: bytes) -> dict[str, Any]:
    """Take the list of pods from an HTTP/1.0 answer.

    Raises:
        NotYet: it is not whole, or no good one.
    """
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].decode(errors="replace")
    if status.split(" ")[1:2] != ["200"]:
        raise NotYet(f"it answers {status!r}")
    try:
        listed = json.loads(body)
    except ValueError as error:
        raise NotYet(f"its answer is cut: {error}") from error
    if not isinstance(listed, dict):
        raise NotYet("its answer is no list of pods")
    return listed


def read_pods(node: str, node_address: str, listed: Mapping[str, Any], pids: Mapping[str, int]) -> list[PodStatus]:
    """Read a PodList; `pids` are those of running containers by id."""
    return [_pod(node, node_address, pod, pids) for pod in listed.get("items") or ()]


def matches(pod: PodStatus, wanted: str) -> bool:
    """Tell whether a name is the pod's, or the part before what was generated: `-x7k2p`, or a static pod's node."""
    return pod.name == wanted or pod.name.startswith(f"{wanted}-")


def find_logs(logs: Path, namespace: str, pod: str, container: str) -> list[Path]:
    """List a container's log files, oldest first, also those of pods of that name that are gone."""
    files = [
        path
        for folder in logs.glob(f"{namespace}_*")
        if _is_folder_of(folder.name, pod)
        for path in folder.glob(f"{container}/*.log*")
        if path.suffix != ".gz"
    ]
    return sorted(files, key=lambda path: (path.parent.parent.stat().st_mtime, path.parent, _order(path)))


def parse_log(content: bytes) -> str:
    """Take the wrapping off: time, stream and whether the line ended there (CRI's log format)."""
    return b"".join(_unwrapped(content.split(b"\n"))).decode(errors="replace")


def _unwrapped(lines: Iterable[bytes]) -> Iterable[bytes]:
    for line in lines:
        found = _LINE.fullmatch(line)
        if found:
            yield (found[2] or b"") + (b"\n" if found[1] == b"F" else b"")


def _is_folder_of(name: str, pod: str) -> bool:
    parts = name.split("_")
    return len(parts) == 3 and (parts[1] == pod or parts[1].startswith(f"{pod}-"))


def _order(path: Path) -> tuple[int, bool, str]:
    """`0.log.20260101-000000` was rotated away from `0.log`, and so is older."""
    number = path.name.split(".")[0]
    return int(number) if number.isdecimal() else 0, path.name.endswith(".log"), path.name


def _pod(node: str, node_address: str, pod: Mapping[str, Any], pids: Mapping[str, int]) -> PodStatus:
    status = pod.get("status") or {}
    is_on_host = bool((pod.get("spec") or {}).get("hostNetwork"))
    known = {str(one.get("name")): one for one in status.get("containerStatuses") or ()}
    containers = (pod.get("spec") or {}).get("containers") or ()
    return PodStatus(
        namespace=str(pod["metadata"].get("namespace", "default")),
        name=str(pod["metadata"]["name"]),
        node=node,
        address=node_address if is_on_host else str(status.get("podIP") or ""),
        containers=tuple(_container(spec, known.get(str(spec["name"]), {}), pids) for spec in containers),
    )


def _container(spec: Mapping[str, Any], status: Mapping[str, Any], pids: Mapping[str, int]) -> ContainerStatus:
    pid = pids.get(str(status.get("containerID") or "").removeprefix(_RUNTIME))
    return ContainerStatus(
        name=str(spec["name"]),
        image=str(spec.get("image") or ""),
        pid=pid,
        restarts=int(status.get("restartCount") or 0),
        is_ready=pid is not None and bool(status.get("ready")),
        last_exit=_last_exit(status),
    )


def _last_exit(status: Mapping[str, Any]) -> int | None:
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended is not None:
            code = int(ended.get("exitCode") or 0)
            return -(code - _SIGNALLED) if _SIGNALLED < code <= _SIGNALLED + _HIGHEST_SIGNAL else code
    return None
