"""Pods under the real kubelet: on the bootstrap node standalone, on the others registered."""

import signal
from typing import TYPE_CHECKING, Any, Final

from umbilical.fault import LabError
from umbilical.lab.kubelet import cni, containerd, kubelet_config, node_runtime, pod_list
from umbilical.lab.kubelet.needs import check_needs
from umbilical.lab.runner import MANIFESTS, PodStatus, RunnerKind
from umbilical.lab.waiting import NotYet, wait

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

PROCESS: Final = "kubelet"
START_SECONDS: Final = 60.0
LIST_SECONDS: Final = 20.0
_IS_OPEN: Final = 'exec 3<>"/dev/tcp/127.0.0.1/$1"'
# A Python for it would take ten times as long, and scenarios ask again and again.
_ASK_FOR_PODS: Final = _IS_OPEN + r"; printf 'GET /pods HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3; timeout 5 cat <&3"


class KubeletRunner:
    """One containerd and one kubelet per node, started through the lab like any program."""

    @property
    def kind(self) -> RunnerKind:
        return RunnerKind.KUBELET

    def start(self, lab: "Lab", node: str, kubeconfig: str | None) -> None:
        """Begin, or go on with another kubeconfig: containers outlive their kubelet.

        Raises:
            LabError: something is missing (UMB840, UMB841), or a program of the node does not come up (UMB842, UMB850).
        """
        check_needs(lab.state.binaries)
        node_runtime.stop_if_running(lab, node, PROCESS)
        group = node_runtime.make_group(lab, node)
        node_runtime.start_containerd(lab, node)
        addresses = [str(address.ip) for address in lab.topology.node(node).addresses]
        configuration = kubelet_config.configuration(group, addresses, is_registered=kubeconfig is not None)
        _write_configuration(lab, node, configuration)
        lab.start(node, PROCESS, kubelet_config.command(node, addresses, kubeconfig))
        wait(f"the kubelet on {node}", lambda: _look_at_kubelet(lab, node), START_SECONDS)

    def pods(self, lab: "Lab", node: str) -> list[PodStatus]:
        if not node_runtime.is_running(lab, node, PROCESS):
            return []
        address = lab.topology.node(node).address
        return pod_list.read_pods(node, address, _listed(lab, node), containerd.task_pids(lab, node))

    def signal(self, lab: "Lab", node: str, pod: str, container: str, number: signal.Signals) -> None:
        """Send a signal to the first process of a container.

        Raises:
            LabError: UMB844, there is none.
        """
        for found in self.pods(lab, node):
            if pod_list.matches(found, pod):
                for one in found.containers:
                    if one.name == container and one.pid is not None:
                        lab.exec(node, ["sh", "-c", f"kill -{number.value} {one.pid}"]).check()
                        return
        why = f"no container {container} of a pod {pod} runs there"
        raise LabError("UMB844", f"cannot send {number.name} on {node}", why, "look at: umbilical lab status")

    def logs(self, lab: "Lab", node: str, pod: str, container: str) -> str:
        folder = lab.directory.node_root(node) / kubelet_config.LOGS_DIRECTORY.lstrip("/")
        return "".join(
            pod_list.parse_log(path.read_bytes()) for path in pod_list.find_logs(folder, "*", pod, container)
        )


def _write_configuration(lab: "Lab", node: str, configuration: bytes) -> None:
    networks = lab.topology.node(node).pod_networks
    if networks:
        lab.write(node, cni.PATH, cni.conflist(networks), 0o644)
    lab.write(node, kubelet_config.PATH, configuration, 0o644)
    # The kubelet would make it with a mode that lets only root look inside; manifests are no secret in a lab.
    (lab.directory.node_root(node) / MANIFESTS.lstrip("/")).mkdir(parents=True, exist_ok=True)


def _look_at_kubelet(lab: "Lab", node: str) -> None:
    containerd.refuse_if_ended(lab, node, PROCESS)
    if lab.exec(node, ["bash", "-c", _IS_OPEN, "bash", str(kubelet_config.STATUS_PORT)]).exit_code != 0:
        raise NotYet("its port for status is closed")


def _listed(lab: "Lab", node: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        answer = lab.exec(node, ["bash", "-c", _ASK_FOR_PODS, "bash", str(kubelet_config.STATUS_PORT)])
        return pod_list.parse_answer(answer.stdout)

    return wait(f"the kubelet's list of pods on {node}", look, LIST_SECONDS)
