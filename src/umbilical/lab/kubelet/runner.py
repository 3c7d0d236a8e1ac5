"""Pods under the real kubelet, standalone on the bootstrap node and registered on the others; and reading the status
and logs of its pods.
"""

import json
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab.kubelet import containerd, kubelet_config, node_runtime
from umbilical.lab.kubelet.node_runtime import check_needs
from umbilical.lab.lab import Lab
from umbilical.lab.network import POD_BRIDGE
from umbilical.lab.runner import MANIFESTS, ContainerStatus, PodStatus, is_called, is_log_folder
from umbilical.lab.state import RunnerKind
from umbilical.lab.waiting import wait
from umbilical.manifests.objects import CONFIG_DIRECTORY, bridge_conflist

CNI_CONFIG_PATH: Final = f"{CONFIG_DIRECTORY}/10-lab.conflist"
_RUNTIME: Final = "containerd://"
_LINE: Final = re.compile(rb"\S+ (?:stdout|stderr) ([FP])(?: (.*))?", re.DOTALL)
# As in a shell: 128 plus the number of the signal.
_SIGNALLED: Final = 128
_HIGHEST_SIGNAL: Final = 64


def parse_answer(answer: bytes) -> dict[str, Any]:
    """Parse the list of pods from an HTTP/1.0 answer. Raises NotYet: incomplete, or not status 200."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].decode(errors="replace")
    if status.split(" ")[1:2] != ["200"]:
        raise NotYet(f"it answered {status!r}")
    try:
        listed = json.loads(body)
    except ValueError as error:
        raise NotYet(f"its answer is truncated: {error}") from error
    if not isinstance(listed, dict):
        raise NotYet("its answer is not a list of pods")
    return listed


def read_pods(node: str, node_address: str, listed: Mapping[str, Any], pids: Mapping[str, int]) -> list[PodStatus]:
    """Read a PodList; `pids` maps ids of running containers to pids."""
    return [_pod_status(node, node_address, pod, pids) for pod in listed.get("items") or ()]


def find_logs(logs: Path, namespace: str, pod: str, container: str) -> list[Path]:
    """List a container's log files, oldest first, including those of deleted pods of that name."""
    files = [
        path
        for folder in logs.glob(f"{namespace}_*")
        if is_log_folder(folder.name, pod)
        for path in folder.glob(f"{container}/*.log*")
        if path.suffix != ".gz"
    ]
    return sorted(files, key=lambda path: (path.parent.parent.stat().st_mtime, path.parent, _order(path)))


def parse_log(content: bytes) -> str:
    """Remove time, stream and partial-line tag of the CRI log format."""
    return b"".join(_unwrapped(content.split(b"\n"))).decode(errors="replace")


def _unwrapped(lines: Iterable[bytes]) -> Iterable[bytes]:
    for line in lines:
        found = _LINE.fullmatch(line)
        if found:
            yield (found[2] or b"") + (b"\n" if found[1] == b"F" else b"")


def _order(path: Path) -> tuple[int, bool, str]:
    """Sort rotated files before the current: `0.log.20260101-000000` is older than `0.log`."""
    number = path.name.split(".")[0]
    return int(number) if number.isdecimal() else 0, path.name.endswith(".log"), path.name


def _pod_status(node: str, node_address: str, pod: Mapping[str, Any], pids: Mapping[str, int]) -> PodStatus:
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


PROCESS: Final = "kubelet"
START_SECONDS: Final = 60.0
LIST_SECONDS: Final = 20.0
_IS_OPEN: Final = 'exec 3<>"/dev/tcp/127.0.0.1/$1"'
# bash starts ten times faster than Python, and scenarios poll often.
_ASK_FOR_PODS: Final = _IS_OPEN + r"; printf 'GET /pods HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3; timeout 5 cat <&3"


class KubeletRunner:
    """One containerd and one kubelet per node, started like any program of the lab."""

    @property
    def kind(self) -> RunnerKind:
        return RunnerKind.KUBELET

    def start(self, lab: Lab, node: str, kubeconfig: str | None) -> None:
        """Start the kubelet, or restart it with another kubeconfig: containers keep running.

        Raises LabError: something is missing (UMB840, UMB841), or a program does not start (UMB842, UMB850).
        """
        check_needs(lab.state.binaries)
        node_runtime.stop_if_running(lab, node, PROCESS)
        group = node_runtime.make_group(lab, node)
        node_runtime.start_containerd(lab, node)
        addresses = [str(address.ip) for address in lab.topology.node(node).addresses]
        configuration = kubelet_config.configuration(group, addresses, is_registered=kubeconfig is not None)
        _write_configuration(lab, node, configuration)
        lab.start(node, PROCESS, kubelet_config.command(node, addresses, kubeconfig), restarts=True)
        wait(f"the kubelet on {node}", lambda: _look_at_kubelet(lab, node), START_SECONDS)

    def pods(self, lab: Lab, node: str) -> list[PodStatus]:
        if not node_runtime.is_running(lab, node, PROCESS):
            return []
        address = lab.topology.node(node).address
        return read_pods(node, address, _listed(lab, node), containerd.task_pids(lab, node))

    def signal(self, lab: Lab, node: str, pod: str, container: str, number: signal.Signals) -> None:
        """Send a signal to the first process of a container. Raises LabError: UMB844, it does not run."""
        for found in self.pods(lab, node):
            if is_called(found.name, pod):
                for one in found.containers:
                    if one.name == container and one.pid is not None:
                        lab.exec(node, ["sh", "-c", f"kill -{number.value} {one.pid}"]).check()
                        return
        why = f"no container {container} of a pod {pod} runs there"
        raise LabError("UMB844", f"could not send {number.name} on {node}", why, "umbilical lab status")

    def logs(self, lab: Lab, node: str, pod: str, container: str) -> str:
        folder = lab.directory.node_root(node) / kubelet_config.LOGS_DIRECTORY.lstrip("/")
        return "".join(parse_log(path.read_bytes()) for path in find_logs(folder, "*", pod, container))


def _write_configuration(lab: Lab, node: str, configuration: bytes) -> None:
    # In the node's order: the first network gives the pod's main address.
    networks = lab.topology.node(node).pod_networks
    if networks:
        lab.write(node, CNI_CONFIG_PATH, bridge_conflist("lab", POD_BRIDGE, networks), 0o644)
    lab.write(node, kubelet_config.PATH, configuration, 0o644)
    # The kubelet would create it readable by root only; manifests in a lab are not secret.
    (lab.directory.node_root(node) / MANIFESTS.lstrip("/")).mkdir(parents=True, exist_ok=True)


def _look_at_kubelet(lab: Lab, node: str) -> None:
    containerd.refuse_if_ended(lab, node, PROCESS)
    if lab.exec(node, ["bash", "-c", _IS_OPEN, "bash", str(kubelet_config.STATUS_PORT)]).exit_code != 0:
        raise NotYet("its status port is closed")


def _listed(lab: Lab, node: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        answer = lab.exec(node, ["bash", "-c", _ASK_FOR_PODS, "bash", str(kubelet_config.STATUS_PORT)])
        return parse_answer(answer.stdout)

    return wait(f"the kubelet's list of pods on {node}", look, LIST_SECONDS)
