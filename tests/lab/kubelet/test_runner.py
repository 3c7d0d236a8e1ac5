"""Pods under a real kubelet without an API: run, restarted, read, removed, and nothing left on the machine."""

import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.labs import machine_picture, running, wait_until

from umbilical.lab import binaries, cgroups
from umbilical.lab.errors import LabError
from umbilical.lab.images import UMBILICAL
from umbilical.lab.kubelet import containerd, node_runtime
from umbilical.lab.kubelet.kubelet_config import KERNEL_SETTINGS
from umbilical.lab.kubelet.needs import find_cni
from umbilical.lab.kubelet.runner import KubeletRunner
from umbilical.lab.lab import Lab
from umbilical.lab.runner import MANIFESTS, PodStatus, RunnerKind

NODE = "master-0"


def test_the_configuration_says_what_this_machine_needs() -> None:
    document = tomllib.loads(containerd.config("native", Path("/usr/lib/cni")))
    assert document["root"] == "/var/lib/containerd"
    assert document["grpc"]["address"] == containerd.SOCKET
    runtime = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert runtime["sandbox_image"] == "localhost/pause:1"
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["disable_apparmor"] is True
    assert runtime["containerd"]["snapshotter"] == "native"
    assert runtime["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/etc/cni/net.d"}


def test_running_tasks_have_a_pid() -> None:
    shown = "TASK    PID    STATUS    \nabc     286    RUNNING\ndef     0      STOPPED\n"
    assert containerd.parse_tasks(shown) == {"abc": 286}


@given(st.text(st.characters(codec="utf-8", exclude_characters="0123456789")))
def test_another_table_has_no_tasks(text: str) -> None:
    assert containerd.parse_tasks(text) == {}


@pytest.fixture(scope="module")
def bare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("containerd") / "lab", runner=RunnerKind.KUBELET) as bare_lab:
        yield bare_lab


REAL = pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr")


@pytest.mark.root
@REAL
def test_it_starts_and_has_no_tasks(bare_lab: Lab) -> None:
    plugins = find_cni()
    assert plugins is not None
    snapshotter = containerd.choose_snapshotter(bare_lab, NODE)
    assert snapshotter in ("overlayfs", "native")
    assert not bare_lab.exists(NODE, "/var/lib/overlay-trial")
    bare_lab.write(NODE, containerd.CONFIG_PATH, containerd.config(snapshotter, plugins).encode())
    containerd.start(bare_lab, NODE)
    assert containerd.task_pids(bare_lab, NODE) == {}
    assert containerd.version(bare_lab, NODE)[0].isdigit()
    bare_lab.stop(NODE, containerd.PROCESS)


@pytest.mark.root
@REAL
def test_one_that_ends_is_told_of_with_its_last_words(bare_lab: Lab) -> None:
    bare_lab.write("bootstrap", containerd.CONFIG_PATH, b"this is no configuration")
    with pytest.raises(LabError, match="UMB842") as refused:
        containerd.start(bare_lab, "bootstrap")
    assert "containerd on bootstrap ended with 1" in refused.value.what
    assert refused.value.remedy.endswith("logs/bootstrap/containerd.log")


@pytest.fixture(scope="module")
def lab2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path = tmp_path_factory.mktemp("runtime") / "lab"
    with running(path, runner=RunnerKind.KUBELET, binaries=binaries.find(["kubelet"])) as lab2:
        yield lab2


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_nodes_group_lies_in_the_labs_own_which_is_written_down(lab2: Lab) -> None:
    group = node_runtime.make_group(lab2, "master-0")
    assert group == node_runtime.group_of(lab2, "master-0") == f"{lab2.state.cgroup}/master-0"
    assert cgroups.find(group) != []


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_containerd_is_started_once_and_has_the_labs_images(lab2: Lab) -> None:
    node_runtime.start_containerd(lab2, "master-0")
    before = [one.pid for one in lab2.processes() if one.name == containerd.PROCESS]
    node_runtime.start_containerd(lab2, "master-0")
    assert [one.pid for one in lab2.processes() if one.name == containerd.PROCESS] == before
    images = containerd.ctr(lab2, "master-0", "images", "ls", "-q").check().text.split()
    assert {"localhost/umbilical:lab", "localhost/apiserver-network-proxy:lab"} <= set(images)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_stopping_what_does_not_run_is_fine(lab2: Lab) -> None:
    lab2.start("bootstrap", "sleeper", ["sleep", "1000"])
    assert node_runtime.is_running(lab2, "bootstrap", "sleeper")
    node_runtime.stop_if_running(lab2, "bootstrap", "sleeper")
    assert not node_runtime.is_running(lab2, "bootstrap", "sleeper")
    node_runtime.stop_if_running(lab2, "bootstrap", "sleeper")


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
            lab.runner.start(lab, node, None)
        group = lab.state.cgroup
        assert group is not None
        assert cgroups.find(group)
        yield lab
    assert cgroups.find(group) == []
    assert (machine_picture(), kernel_settings()) == before


def pod_on(lab: Lab, node: str) -> PodStatus | None:
    return next((pod for pod in lab.runner.pods(lab, node) if pod.name == f"{NAME}-{node}"), None)


def run_pod(lab: Lab, node: str, *, host_network: bool, program: str = SPEAK) -> PodStatus:
    lab.write(node, f"{MANIFESTS}/{NAME}.yaml", static_pod(host_network=host_network, program=program))

    def is_ready() -> bool:
        pod = pod_on(lab, node)
        return pod is not None and pod.is_ready

    wait_until(is_ready, SECONDS)
    pod = pod_on(lab, node)
    assert pod is not None
    return pod


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_static_pod_of_the_bootstrap_node_has_the_nodes_address(lab: Lab) -> None:
    pod = run_pod(lab, "bootstrap", host_network=True)
    assert lab.runner.kind is RunnerKind.KUBELET
    assert (pod.namespace, pod.node, pod.address) == ("kube-system", "bootstrap", "10.91.0.10")
    (container,) = pod.containers
    assert (container.name, container.image, container.restarts) == (NAME, UMBILICAL, 0)
    wait_until(lambda: lab.runner.logs(lab, "bootstrap", NAME, NAME) == "bootstrap 65532\n", SECONDS)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_killed_container_is_started_again_and_its_log_goes_on(lab: Lab) -> None:
    before = run_pod(lab, "bootstrap", host_network=True).containers[0]
    lab.runner.signal(lab, "bootstrap", NAME, NAME, signal.SIGKILL)

    def is_back() -> bool:
        pod = pod_on(lab, "bootstrap")
        return pod is not None and pod.is_running and pod.containers[0].restarts == before.restarts + 1

    wait_until(is_back, SECONDS)
    pod = pod_on(lab, "bootstrap")
    assert pod is not None
    assert pod.containers[0].pid != before.pid
    assert pod.containers[0].last_exit == -signal.SIGKILL
    wait_until(lambda: lab.runner.logs(lab, "bootstrap", NAME, NAME).count("bootstrap 65532") == 2, SECONDS)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_pod_outside_the_nodes_network_has_an_address_of_the_nodes_range(lab: Lab) -> None:
    pod = run_pod(lab, "master-0", host_network=False, program=LISTEN)
    assert pod.address.startswith("10.92.0.")
    dial = ["bash", "-c", f"exec 3<>/dev/tcp/{pod.address}/7000"]
    wait_until(lambda: lab.exec("master-0", dial).exit_code == 0, SECONDS)
    assert b"unreachable" in lab.exec("bootstrap", dial).stderr


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_manifest_that_goes_takes_its_pod_along(lab: Lab) -> None:
    run_pod(lab, "master-0", host_network=False, program=LISTEN)
    lab.remove("master-0", f"{MANIFESTS}/{NAME}.yaml")
    wait_until(lambda: pod_on(lab, "master-0") is None, SECONDS)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_starting_again_keeps_what_runs(lab: Lab) -> None:
    before = run_pod(lab, "bootstrap", host_network=True).containers[0]
    lab.runner.start(lab, "bootstrap", None)

    def is_known() -> bool:
        pod = pod_on(lab, "bootstrap")
        return pod is not None and pod.is_running

    wait_until(is_known, SECONDS)
    pod = pod_on(lab, "bootstrap")
    assert pod is not None
    assert pod.containers[0].pid == before.pid


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_the_kernels_settings_are_as_a_kubelet_wants_them_on_nodes_alone(lab: Lab) -> None:
    for name, value in KERNEL_SETTINGS.items():
        assert lab.exec("bootstrap", ["cat", f"/proc/sys/{name}"]).text == f"{value}\n"


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_signal_for_nobody_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="UMB844"):
        lab.runner.signal(lab, "bootstrap", "nobody", NAME, signal.SIGTERM)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "kubelet", "dpkg-query", "apt-cache")
def test_a_node_without_a_kubelet_has_no_pods(lab: Lab) -> None:
    lab.stop("master-0", "kubelet")
    assert KubeletRunner().pods(lab, "master-0") == []
