"""The process runner, which starts a podrunner on each node and reads its report; and `runner_of`, the runner of a lab.

Not in `lab.py`, which every runner imports.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.lab import images
from umbilical.lab.lab import Lab
from umbilical.lab.runner import ContainerStatus, LabRunner, PodStatus, is_called, is_log_folder
from umbilical.lab.state import RunnerKind
from umbilical.lab.topology import LabNodeRole, Node

NAME: Final = "podrunner"
"""Name of the podrunner process; its log is `lab.log(node, NAME)`."""
IMAGES_FILE: Final = "/etc/umbilical/images.json"
STATUS_FILE: Final = "/run/podrunner/status.json"
LOGS: Final = "var/log/pods"
# Labels of kubeadm and OpenShift.
ROLE_LABELS: Final = {
    LabNodeRole.BOOTSTRAP: (),
    LabNodeRole.MANAGEMENT: (),
    LabNodeRole.MASTER: ("node-role.kubernetes.io/control-plane=", "node-role.kubernetes.io/master="),
    LabNodeRole.WORKER: ("node-role.kubernetes.io/worker=",),
}


class ProcessRunner:
    @property
    def kind(self) -> RunnerKind:
        return RunnerKind.PROCESS

    def start(self, lab: Lab, node: str, kubeconfig: str | None) -> None:
        """Start to run pods on a node; a runner that exists there is restarted with its pods."""
        self.stop(lab, node)
        binaries = {name: Path(path) for name, path in lab.state.binaries.items()}
        lab.write(node, IMAGES_FILE, images.to_json(images.lab_images(binaries)), 0o644)
        lab.start(node, NAME, command(lab.topology.node(node), kubeconfig))

    def stop(self, lab: Lab, node: str) -> None:
        """Stop the runner and its pods; without a runner this is fine."""
        for process in lab.processes():
            if (process.node, process.name) == (node, NAME) and process.exit_code is None:
                lab.stop(node, NAME)
        if lab.exists(node, STATUS_FILE):
            # The report of the old runner is outdated.
            lab.remove(node, STATUS_FILE)

    def pods(self, lab: Lab, node: str) -> list[PodStatus]:
        if not lab.exists(node, STATUS_FILE):
            return []
        return parse_status(lab.read(node, STATUS_FILE))

    def signal(self, lab: Lab, node: str, pod: str, container: str, number: signal.Signals) -> None:
        """Send a signal to the first process of a container. Raises LabError: it is not running (UMB837)."""
        pid = self._running(lab, node, pod, container)
        # `kill` of the shell: the program may be missing on this machine.
        script = 'kill -s "$1" "$2"'
        lab.exec(node, ["sh", "-c", script, "sh", number.name.removeprefix("SIG"), str(pid)]).check()

    def logs(self, lab: Lab, node: str, pod: str, container: str) -> str:
        """Return all output of the container, removed pods of that name included, oldest first."""
        folder = lab.directory.node_root(lab.topology.node(node).name) / LOGS
        files = [path for path in folder.glob(f"*/{container}/*.log") if is_log_folder(path.parent.parent.name, pod)]
        files.sort(key=lambda path: (path.stat().st_mtime_ns, int(path.stem) if path.stem.isdigit() else 0))
        return "".join(path.read_text(errors="replace") for path in files)

    def _running(self, lab: Lab, node: str, pod: str, container: str) -> int:
        pods = [status for status in self.pods(lab, node) if is_called(status.name, pod)]
        for status in pods:
            for each in status.containers:
                if each.name == container and each.pid is not None:
                    return each.pid
        known = ", ".join(f"{status.name} ({', '.join(each.name for each in status.containers)})" for status in pods)
        raise LabError(
            "UMB837",
            f"container {container} of pod {pod} is not running on {node}",
            f"existing pods: {known}" if known else "the pod does not exist",
            f"read the runner's log: {lab.directory.log_file(node, NAME)}",
        )


def command(node: Node, kubeconfig: str | None) -> list[str]:
    addresses = [str(interface.ip) for interface in node.addresses]
    own = [sys.executable, "-P", "-m", "umbilical.lab.podrunner", "--node", node.name, "--images", IMAGES_FILE]
    networks = ["--pod-networks", *map(str, node.pod_networks)] if node.pod_networks else []
    api = ["--kubeconfig", kubeconfig] if kubeconfig is not None else []
    return [*own, "--node-ip", *addresses, *networks, "--labels", *ROLE_LABELS[node.role], *api]


def parse_status(content: bytes) -> list[PodStatus]:
    """Decode the runner's report. Raises LabError: it is not valid (UMB838)."""
    try:
        report = json.loads(content)
        return [_pod(report["node"], entry) for entry in report["pods"]]
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        remedy = f"read the log of {NAME} on the node"
        raise LabError("UMB838", "the runner's report was not read", why, remedy) from None


def _pod(node: str, entry: dict[str, Any]) -> PodStatus:
    containers = tuple(
        ContainerStatus(
            name=each["name"],
            image=each["image"],
            pid=each["pid"],
            restarts=each["restarts"],
            is_ready=each["ready"],
            last_exit=each["last_exit"],
        )
        for each in entry["containers"]
    )
    return PodStatus(entry["namespace"], entry["name"], node, entry["address"], containers)


def runner_of(lab: Lab) -> LabRunner:
    """Return the runner of a lab. The kubelet runner is imported only when needed."""
    if lab.state.runner is RunnerKind.KUBELET:
        from umbilical.lab.kubelet.runner import KubeletRunner

        return KubeletRunner()
    return ProcessRunner()
