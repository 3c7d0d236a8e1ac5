"""Pods as processes in whole labs: the rendered manifests, unmodified, ours and upstream's, as root and without."""

import ipaddress
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import yaml
from tests.support.labs import WAYS, isolated, running, wait_until

import peers
from umbilical.assets.names import STATIC_POD
from umbilical.assets.spec import Shape
from umbilical.assets.tree import yaml_bytes
from umbilical.lab.cast import OURS, UPSTREAM, Cast
from umbilical.lab.errors import LabError
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab
from umbilical.lab.process_runner import NAME, ProcessRunner, command, is_called, parse_status
from umbilical.lab.runner import PodStatus, RunnerKind
from umbilical.lab.topology import Node, Role
from umbilical.lab.tunnel_parts import TunnelParts, make_parts
from umbilical.pki.authority import Authority

NAMESPACES = pytest.mark.real("unshare", "nsenter", "nft")
GO = ("proxy-server", "proxy-agent")
WORKER = "master-0"
SERVER = "konnectivity-server"
AGENT = "konnectivity-agent"
DAEMONS = "/etc/kubernetes/daemons/agents.yaml"


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    way: Isolation = request.param
    binaries = {name: path for name in GO if (path := peers.binary(name)) is not None}
    folder = tmp_path_factory.mktemp(way.name) / "lab"
    with isolated(way), running(folder, binaries=binaries) as found:
        for node in ("bootstrap", WORKER):
            found.runner.start(found, node, None)
        yield found


def parts_for(lab: Lab, cast: Cast) -> TunnelParts:
    return make_parts(cast, lab.topology.bootstrap.address, Authority, datetime.now(UTC))


def lay_tunnel(lab: Lab, parts: TunnelParts) -> None:
    for asset in parts.files:
        if not asset.path.startswith("/usr/"):
            lab.write("bootstrap", asset.path, asset.content, asset.mode)
    lab.write(WORKER, DAEMONS, yaml.safe_dump_all(parts.objects).encode())


def the_pod(lab: Lab, node: str, name: str) -> PodStatus | None:
    return next((pod for pod in lab.runner.pods(lab, node) if is_called(pod.name, name)), None)


def pid_of(lab: Lab, node: str, name: str) -> int | None:
    pod = the_pod(lab, node, name)
    return None if pod is None else pod.containers[0].pid


def is_ready(lab: Lab, node: str, name: str) -> bool:
    pod = the_pod(lab, node, name)
    return pod is not None and pod.is_ready


def starts(lab: Lab) -> int:
    return lab.runner.logs(lab, "bootstrap", SERVER, SERVER).count("server ready to serve")


def connected(lab: Lab) -> int:
    text = lab.exec("bootstrap", ["curl", "-s", "http://127.0.0.1:8095/metrics"]).text
    lines = [line for line in text.splitlines() if "ready_backend_connections " in line and not line.startswith("#")]
    return int(float(lines[0].split()[-1])) if lines else 0


@pytest.mark.parametrize(
    "cast",
    [
        Cast(Shape.OPENSHIFT),
        Cast(Shape.SEED),
        Cast(Shape.OPENSHIFT, UPSTREAM, UPSTREAM),
        Cast(Shape.SEED, UPSTREAM, OURS),
    ],
    ids=["openshift", "seed", "openshift-upstream", "seed-mixed"],
)
@pytest.mark.real("unshare", "nsenter", "nft", "curl", *GO)
def test_the_rendered_tunnel_comes_up_unmodified(lab: Lab, cast: Cast) -> None:
    lay_tunnel(lab, parts_for(lab, cast))
    wait_until(lambda: connected(lab) == 1, seconds=60)
    server, agent = the_pod(lab, "bootstrap", SERVER), the_pod(lab, WORKER, AGENT)
    assert server is not None
    assert agent is not None
    assert (server.name, server.namespace) == (f"{SERVER}-bootstrap", "kube-system")
    assert server.address == lab.topology.bootstrap.address
    pods = ipaddress.ip_network("10.92.0.0/16")
    assert (ipaddress.ip_address(agent.address) in pods) is (cast.shape is Shape.OPENSHIFT)
    assert (
        lab.exec("bootstrap", ["test", "-S", "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket"]).exit_code
        == 0
    )


@NAMESPACES
def test_keys_of_the_agents_are_on_no_disk_of_a_node(lab: Lab) -> None:
    parts = parts_for(lab, Cast())
    lay_tunnel(lab, parts)
    wait_until(lambda: is_ready(lab, WORKER, AGENT), seconds=60)
    root = lab.directory.node_root(WORKER)
    key = parts.certificates.agent.key
    files = [path for folder in ("run", "var", "tmp") for path in (root / folder).rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if key in path.read_bytes()] == []


@NAMESPACES
def test_a_user_that_a_lab_without_root_does_not_have_is_told_of(lab: Lab) -> None:
    lay_tunnel(lab, parts_for(lab, Cast()))
    wait_until(lambda: is_ready(lab, WORKER, AGENT), seconds=60)
    status = lab.exec(WORKER, ["cat", f"/proc/{pid_of(lab, WORKER, AGENT)}/status"]).text
    user = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
    assert user == ("0" if lab.state.is_rootless else "65532")
    assert ("runs as root instead of user 65532" in lab.log(WORKER, NAME)) is lab.state.is_rootless


@NAMESPACES
def test_a_removed_file_stops_its_pod_and_a_changed_one_starts_it_anew(lab: Lab) -> None:
    parts = parts_for(lab, Cast())
    lay_tunnel(lab, parts)
    wait_until(lambda: starts(lab) == 1, seconds=60)
    first = pid_of(lab, "bootstrap", SERVER)
    content = yaml.safe_load(lab.read("bootstrap", STATIC_POD))
    content["metadata"]["annotations"]["changed"] = "yes"
    lab.write("bootstrap", STATIC_POD, yaml_bytes(content))
    wait_until(lambda: pid_of(lab, "bootstrap", SERVER) not in (None, first), seconds=60)
    wait_until(lambda: starts(lab) == 2, seconds=60)
    lab.remove("bootstrap", STATIC_POD)
    wait_until(lambda: lab.runner.pods(lab, "bootstrap") == [], seconds=60)
    assert lab.exec("bootstrap", ["sh", "-c", "ss -Hltn sport = :8091"]).text == ""
    assert starts(lab) == 2


@NAMESPACES
def test_a_killed_container_comes_back_and_the_one_before_is_told_of(lab: Lab) -> None:
    lay_tunnel(lab, parts_for(lab, Cast()))
    wait_until(lambda: is_ready(lab, "bootstrap", SERVER), seconds=60)
    lab.runner.signal(lab, "bootstrap", SERVER, SERVER, signal.SIGKILL)

    def is_back() -> bool:
        pod = the_pod(lab, "bootstrap", SERVER)
        return pod is not None and pod.is_ready and pod.containers[0].restarts == 1

    wait_until(is_back, seconds=60)
    pod = the_pod(lab, "bootstrap", SERVER)
    assert pod is not None
    assert pod.containers[0].last_exit == -signal.SIGKILL


@NAMESPACES
def test_a_runner_that_is_started_anew_takes_its_pods_along(lab: Lab) -> None:
    lay_tunnel(lab, parts_for(lab, Cast()))
    wait_until(lambda: is_ready(lab, "bootstrap", SERVER), seconds=60)
    first = pid_of(lab, "bootstrap", SERVER)
    lab.runner.start(lab, "bootstrap", None)
    assert lab.exec("bootstrap", ["test", "-e", f"/proc/{first}/exe"]).exit_code != 0
    wait_until(lambda: pid_of(lab, "bootstrap", SERVER) not in (None, first), seconds=60)


@NAMESPACES
def test_a_killed_runner_leaves_no_process_of_a_pod(lab: Lab) -> None:
    lay_tunnel(lab, parts_for(lab, Cast()))
    wait_until(lambda: is_ready(lab, WORKER, AGENT), seconds=60)
    pid = pid_of(lab, WORKER, AGENT)
    lab.stop(WORKER, NAME, kill=True)
    wait_until(lambda: lab.exec(WORKER, ["test", "-e", f"/proc/{pid}/exe"]).exit_code != 0)
    # What it left (a namespace, a tmpfs) is in nobody's way.
    lab.runner.start(lab, WORKER, None)
    wait_until(lambda: is_ready(lab, WORKER, AGENT), seconds=60)


@NAMESPACES
def test_a_container_that_is_not_there_cannot_be_sent_a_signal(lab: Lab) -> None:
    with pytest.raises(LabError, match="UMB837"):
        lab.runner.signal(lab, "bootstrap", SERVER, SERVER, signal.SIGTERM)


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("konnectivity-agent-x7k2p", "konnectivity-agent", True),
        ("konnectivity-agent", "konnectivity-agent", True),
        ("konnectivity-agents", "konnectivity-agent", False),
        ("konnectivity", "konnectivity-agent", False),
    ],
)
def test_a_pod_is_called_by_its_name_or_what_comes_before_the_suffix(name: str, wanted: str, expected: bool) -> None:
    assert is_called(name, wanted) is expected


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"node": "a", "pods": [{}]}', b'{"node": 1, "pods": 7}'])
def test_a_report_that_cannot_be_read_is_told_of(content: bytes) -> None:
    with pytest.raises(LabError, match="UMB838"):
        parse_status(content)


def test_the_runner_is_told_all_of_its_node() -> None:
    network = ipaddress.ip_network("10.92.1.0/24")
    node = Node("worker-0", Role.WORKER, (ipaddress.ip_interface("10.91.0.21/24"),), (network,))
    words = command(node, "/etc/kubernetes/kubelet.kubeconfig")
    assert words[words.index("--node-ip") + 1] == "10.91.0.21"
    assert words[words.index("--pod-networks") + 1] == "10.92.1.0/24"
    assert words[words.index("--kubeconfig") + 1] == "/etc/kubernetes/kubelet.kubeconfig"
    assert "--kubeconfig" not in command(node, None)
    assert ProcessRunner().kind is RunnerKind.PROCESS
