"""Pods under a real kubelet without an API: run, restarted, read, removed, and nothing left on the machine."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.labs import machine_picture, running, wait_until

from umbilical.fault import LabError
from umbilical.lab import binaries, cgroups
from umbilical.lab.images import UMBILICAL
from umbilical.lab.kubelet import containerd, node_runtime
from umbilical.lab.kubelet.kubelet_config import KERNEL_SETTINGS
from umbilical.lab.kubelet.runner import KubeletRunner
from umbilical.lab.lab import Lab
from umbilical.lab.runner import MANIFESTS, PodStatus
from umbilical.lab.runners import runner_of
from umbilical.lab.state import RunnerKind

pytestmark = [
    pytest.mark.usefixtures("own_machine"),
    pytest.mark.root,
    pytest.mark.timeout(240),
    pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache"),
]
# A pod of the agents' kind takes a second; a machine with two busy cores takes its time.
SECONDS: Final = 90.0
NAME: Final = "speaker"
SPEAK: Final = "import os, socket, time; print(socket.gethostname(), os.getuid(), flush=True); time.sleep(3600)"
LISTEN: Final = "import socket, time; s = socket.create_server(('', 7000)); time.sleep(3600)"


def static_pod(*, host_network: bool, program: str = SPEAK) -> bytes:
    container = {
        "name": NAME,
        "image": UMBILICAL,
        "imagePullPolicy": "Never",
        "command": ["python3", "-I", "-c", program],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {"hostNetwork": host_network, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    return yaml.safe_dump(pod).encode()


def kernel_settings() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with a kubelet on both nodes; afterwards the machine is as it was."""
    before = machine_picture(), kernel_settings()
    programs = binaries.find(["kubelet"])
    path = tmp_path_factory.mktemp("kubelet") / "lab"
    with running(path, runner=RunnerKind.KUBELET, binaries=programs) as lab:
        for node in ("bootstrap", "master-0"):
            runner_of(lab).start(lab, node, None)
        group = lab.state.cgroup
        assert group is not None
        assert cgroups.find(group)
        yield lab
    assert cgroups.find(group) == []
    assert (machine_picture(), kernel_settings()) == before


def pod_on(lab: Lab, node: str) -> PodStatus | None:
    return next((pod for pod in runner_of(lab).pods(lab, node) if pod.name == f"{NAME}-{node}"), None)


def pod_when(lab: Lab, node: str, is_so: Callable[[PodStatus], bool]) -> PodStatus:
    """Wait until the pod is there and is so."""

    def found() -> list[PodStatus]:
        pod = pod_on(lab, node)
        return [pod] if pod is not None and is_so(pod) else []

    wait_until(lambda: found() != [], SECONDS)
    return found()[0]


def run_pod(lab: Lab, node: str, *, host_network: bool, program: str = SPEAK) -> PodStatus:
    lab.write(node, f"{MANIFESTS}/{NAME}.yaml", static_pod(host_network=host_network, program=program))
    return pod_when(lab, node, lambda pod: pod.is_ready)


def test_a_static_pod_of_the_bootstrap_node_has_the_nodes_address(lab: Lab) -> None:
    pod = run_pod(lab, "bootstrap", host_network=True)
    assert runner_of(lab).kind is RunnerKind.KUBELET
    assert (pod.namespace, pod.node, pod.address) == ("kube-system", "bootstrap", "10.91.0.10")
    (container,) = pod.containers
    assert (container.name, container.image, container.restarts) == (NAME, UMBILICAL, 0)
    wait_until(lambda: runner_of(lab).logs(lab, "bootstrap", NAME, NAME) == "bootstrap 65532\n", SECONDS)


def test_a_killed_container_is_started_again_and_its_log_goes_on(lab: Lab) -> None:
    before = run_pod(lab, "bootstrap", host_network=True).containers[0]
    runner_of(lab).signal(lab, "bootstrap", NAME, NAME, signal.SIGKILL)
    restarts = before.restarts + 1
    pod = pod_when(lab, "bootstrap", lambda pod: pod.is_running and pod.containers[0].restarts == restarts)
    assert pod.containers[0].pid != before.pid
    assert pod.containers[0].last_exit == -signal.SIGKILL
    wait_until(lambda: runner_of(lab).logs(lab, "bootstrap", NAME, NAME).count("bootstrap 65532") == 2, SECONDS)


def test_a_pod_has_an_address_of_the_nodes_range_and_goes_with_its_manifest(lab: Lab) -> None:
    pod = run_pod(lab, "master-0", host_network=False, program=LISTEN)
    assert pod.address.startswith("10.92.0.")
    dial = ["bash", "-c", f"exec 3<>/dev/tcp/{pod.address}/7000"]
    wait_until(lambda: lab.exec("master-0", dial).exit_code == 0, SECONDS)
    assert b"unreachable" in lab.exec("bootstrap", dial).stderr
    lab.remove("master-0", f"{MANIFESTS}/{NAME}.yaml")
    wait_until(lambda: pod_on(lab, "master-0") is None, SECONDS)


def test_starting_again_keeps_what_runs(lab: Lab) -> None:
    before = run_pod(lab, "bootstrap", host_network=True).containers[0]
    runner_of(lab).start(lab, "bootstrap", None)
    assert pod_when(lab, "bootstrap", lambda pod: pod.is_running).containers[0].pid == before.pid


def test_kernel_settings_are_as_a_kubelet_wants_them_and_stopping_twice_is_fine(lab: Lab) -> None:
    for name, value in KERNEL_SETTINGS.items():
        assert lab.exec("bootstrap", ["cat", f"/proc/sys/{name}"]).text == f"{value}\n"
    lab.start("bootstrap", "sleeper", ["sleep", "1000"])
    assert node_runtime.is_running(lab, "bootstrap", "sleeper")
    node_runtime.stop_if_running(lab, "bootstrap", "sleeper")
    assert not node_runtime.is_running(lab, "bootstrap", "sleeper")
    node_runtime.stop_if_running(lab, "bootstrap", "sleeper")


def test_a_signal_for_nobody_is_refused_and_a_node_without_a_kubelet_has_no_pods(lab: Lab) -> None:
    with pytest.raises(LabError, match="UMB844"):
        runner_of(lab).signal(lab, "bootstrap", "nobody", NAME, signal.SIGTERM)
    lab.stop("master-0", "kubelet")
    assert KubeletRunner().pods(lab, "master-0") == []


def test_a_nodes_group_is_written_down_and_containerd_started_once_with_the_labs_images(lab: Lab) -> None:
    group = node_runtime.make_group(lab, "master-0")
    assert group == node_runtime.group_of(lab, "master-0") == f"{lab.state.cgroup}/master-0"
    assert cgroups.find(group) != []
    node_runtime.start_containerd(lab, "master-0")
    before = [one.pid for one in lab.processes() if one.name == containerd.PROCESS]
    node_runtime.start_containerd(lab, "master-0")
    assert [one.pid for one in lab.processes() if one.name == containerd.PROCESS] == before
    assert not lab.exists("master-0", "/var/lib/overlay-trial")
    images = containerd.ctr(lab, "master-0", "images", "ls", "-q").check().text.split()
    assert {"localhost/umbilical:lab", "localhost/apiserver-network-proxy:lab"} <= set(images)
