"""Pods as processes: the runner of one node, and whole labs with the rendered manifests, ours and upstream's."""

import asyncio
import base64
import dataclasses
import ipaddress
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.labs import WAYS, isolated, running, wait_until
from tests.support.pod_nodes import make_node, shell_pod, until

import peers
from umbilical.bootstrap.names import STATIC_POD
from umbilical.bootstrap.spec import Shape
from umbilical.fault import LabError
from umbilical.lab import images, podrunner
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab
from umbilical.lab.podrunner import PodRunner, main
from umbilical.lab.pods import pod_table
from umbilical.lab.pods.node import RunnerNode
from umbilical.lab.runner import ContainerStatus, PodStatus, is_called
from umbilical.lab.runners import NAME, ProcessRunner, command, parse_status, runner_of
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import listeners_on
from umbilical.lab.topology import LabNodeRole, Node
from umbilical.lab.tunnel_parts import OURS, UPSTREAM, ScenarioOptions, TunnelParts, make_parts
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.authority import Authority

UP = ContainerStatus("agent", "localhost/umbilical:lab", pid=7, restarts=0, is_ready=True)
POD = PodStatus("kube-system", "konnectivity-agent-x", "master-0", "10.92.1.2", (UP,))


def test_a_pod_is_ready_when_all_its_containers_run_and_are_ready() -> None:
    assert POD.is_running
    assert POD.is_ready
    waiting = dataclasses.replace(UP, is_ready=False)
    pod = dataclasses.replace(POD, containers=(UP, waiting))
    assert pod.is_running
    assert not pod.is_ready
    dead = dataclasses.replace(UP, pid=None, last_exit=-9)
    assert not dataclasses.replace(POD, containers=(UP, dead)).is_running
    assert not dataclasses.replace(POD, containers=()).is_ready


LOOP = "trap 'exit 0' TERM; echo begun; while true; do sleep 0.05; done"


@asynccontextmanager
async def running_node(node: RunnerNode) -> AsyncIterator[PodRunner]:
    runner = PodRunner(node)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        try:
            yield runner
        finally:
            task.cancel()


def reported(node: RunnerNode) -> list[dict[str, Any]]:
    if not node.folders.status_file.exists():
        return []
    found = json.loads(node.folders.status_file.read_bytes())["pods"]
    assert isinstance(found, list)
    return found


def node_is_ready(node: RunnerNode, count: int = 1) -> bool:
    pods = reported(node)
    return len(pods) == count and all(container["ready"] for pod in pods for container in pod["containers"])


@pytest.mark.root
async def test_a_file_becomes_a_pod_and_a_pod_becomes_a_report_and_the_runners_end_ends_it(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    left = node.folders.state / "pods" / "of a killed runner" / "empty"
    left.mkdir(parents=True)
    (node.folders.manifests / "gone.yaml").write_text(yaml.safe_dump(shell_pod(LOOP)))
    other = {**shell_pod(LOOP), "metadata": {"name": "other", "namespace": "test"}}
    async with running_node(node):
        await until(lambda: node_is_ready(node))
        (pod,) = reported(node)
        assert (pod["namespace"], pod["name"], pod["address"]) == ("test", "sample-node-1", "127.0.0.1")
        assert (pod["phase"], left.exists()) == ("Running", False)
        (node.folders.manifests / "gone.yaml").unlink()
        await until(lambda: reported(node) == [])
        (node.folders.manifests / "other.yaml").write_text(yaml.safe_dump(other))
        await until(lambda: node_is_ready(node))
        pid = int(reported(node)[0]["containers"][0]["pid"])
    assert not Path(f"/proc/{pid}/exe").exists()
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


@pytest.mark.root
async def test_daemons_run_with_secrets_from_the_same_folder(tmp_path: Path) -> None:
    node = make_node(tmp_path, labels={"role": "worker"})
    spec = shell_pod(
        "cat /pki/key; " + LOOP,
        volumeMounts=[{"name": "pki", "mountPath": "/pki"}],
        spec={"volumes": [{"name": "pki", "secret": {"secretName": "s"}}], "nodeSelector": {"role": "worker"}},
    )["spec"]
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agents", "namespace": "ns"},
        "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}},
    }
    secret = {"kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "stringData": {"key": "hidden "}}
    (node.folders.daemons / "agents.yaml").write_text(yaml.safe_dump_all([daemon]))
    async with running_node(node):
        await until(lambda: bool(reported(node)) and "not found" in reported(node)[0]["trouble"])
        (node.folders.daemons / "secret.yaml").write_text(yaml.safe_dump(secret))
        await until(lambda: node_is_ready(node))
        (log,) = node.folders.logs.glob("ns_agents-*/main/0.log")
        await until(lambda: log.read_text() == "hidden begun\n")


@pytest.mark.root
async def test_a_full_disk_stops_no_pod(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = make_node(tmp_path)
    (node.folders.manifests / "sample.yaml").write_text(yaml.safe_dump(shell_pod(LOOP)))
    scratch = node.folders.status_file.with_name(".status.json.new")
    async with running_node(node):
        await until(lambda: node_is_ready(node))
        before = reported(node)
        # As good as a full disk: the report cannot be written.
        scratch.mkdir()
        (node.folders.manifests / "other.yaml").write_text(
            yaml.safe_dump({**shell_pod(LOOP), "metadata": {"name": "other", "namespace": "test"}})
        )
        await until(lambda: "unexpected error, continuing" in caplog.text)
        scratch.rmdir()
        await until(lambda: node_is_ready(node, 2))
        assert before[0] in reported(node)


@pytest.mark.root
async def test_a_runner_in_a_hurry_gives_nobody_much_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podrunner, "LAST_GRACE_SECONDS", 0.1)
    # Were it not for the hurry, this would go on until the suite's own time limit.
    monkeypatch.setattr(pod_table, "GRACE_CAP_SECONDS", 1000.0)
    node = make_node(tmp_path)
    deaf = shell_pod("trap '' TERM; while true; do sleep 1; done", spec={"terminationGracePeriodSeconds": 1000})
    (node.folders.manifests / "deaf.yaml").write_text(yaml.safe_dump(deaf))
    async with running_node(node) as runner:
        await until(lambda: node_is_ready(node))
        pid = int(reported(node)[0]["containers"][0]["pid"])
        runner.hurry()
    assert not Path(f"/proc/{pid}/exe").exists()


def test_wrong_flags_and_an_unreadable_table_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "images.json").write_text("nonsense")
    assert main(["--node", "n", "--node-ip", "10.91.0.10", "--images", str(tmp_path / "images.json")]) == 1
    assert capsys.readouterr().err.startswith("UMB839")
    (tmp_path / "images.json").write_bytes(images.to_json({}))
    for more in ([], ["--pod-networks", "not-a-network"], ["--back-off-seconds", "soon"]):
        with pytest.raises(SystemExit, match="2"):
            main(["--node", "n", "--images", str(tmp_path / "images.json"), *more])
        assert "podrunner: error" in capsys.readouterr().err


NAMESPACES = pytest.mark.real("unshare", "nsenter", "nft")
GO = ("proxy-server", "proxy-agent")
WORKER = "master-0"
SERVER = "konnectivity-server"
AGENT = "konnectivity-agent"
DAEMONS = "/etc/kubernetes/daemons/agents.yaml"


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.name)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with our tunnel in it, up and ready; a test leaves it so."""
    with lab_with_runners(request.param, tmp_path_factory.mktemp(request.param.name)) as found:
        lay_tunnel(found, parts_for(found, ScenarioOptions()))
        # Pods without a readiness probe are ready as soon as they run; the tests count what the server logs later.
        wait_until(lambda: starts(found) == 1 and is_ready(found, WORKER, AGENT), seconds=60)
        yield found


@contextmanager
def lab_with_runners(way: Isolation, folder: Path) -> Iterator[Lab]:
    binaries = {name: path for name in GO if (path := peers.binary(name)) is not None}
    with isolated(way), running(folder / "lab", binaries=binaries) as found:
        for node in ("bootstrap", WORKER):
            runner_of(found).start(found, node, None)
        yield found


def parts_for(lab: Lab, options: ScenarioOptions) -> TunnelParts:
    return make_parts(options, lab.topology.bootstrap.address, Authority, datetime.now(UTC))


def lay_tunnel(lab: Lab, parts: TunnelParts) -> None:
    for asset in parts.files:
        if not asset.path.startswith("/usr/"):
            lab.write("bootstrap", asset.path, asset.content, asset.mode)
    lab.write(WORKER, DAEMONS, yaml.safe_dump_all(parts.objects).encode())


def the_pod(lab: Lab, node: str, name: str) -> PodStatus | None:
    return next((pod for pod in runner_of(lab).pods(lab, node) if is_called(pod.name, name)), None)


def pid_of(lab: Lab, node: str, name: str) -> int | None:
    pod = the_pod(lab, node, name)
    return None if pod is None else pod.containers[0].pid


def is_ready(lab: Lab, node: str, name: str) -> bool:
    pod = the_pod(lab, node, name)
    return pod is not None and pod.is_ready


def starts(lab: Lab) -> int:
    return runner_of(lab).logs(lab, "bootstrap", SERVER, SERVER).count("server ready to serve")


def connected(lab: Lab) -> int:
    text = lab.exec("bootstrap", ["curl", "-s", "http://127.0.0.1:8095/metrics"]).text
    lines = [line for line in text.splitlines() if "ready_backend_connections " in line and not line.startswith("#")]
    return int(float(lines[0].split()[-1])) if lines else 0


@pytest.mark.parametrize(
    ("way", "options"),
    [
        (WAYS[0], ScenarioOptions(Shape.OPENSHIFT)),
        (WAYS[-1], ScenarioOptions(Shape.SEED)),
        (WAYS[0], ScenarioOptions(Shape.OPENSHIFT, UPSTREAM, UPSTREAM)),
        (WAYS[-1], ScenarioOptions(Shape.SEED, UPSTREAM, OURS)),
    ],
    ids=["openshift", "seed", "openshift-upstream", "seed-mixed"],
)
@pytest.mark.real("unshare", "nsenter", "nft", "curl", *GO)
def test_the_rendered_tunnel_comes_up_unmodified(way: Isolation, options: ScenarioOptions, tmp_path: Path) -> None:
    with lab_with_runners(way, tmp_path) as lab:
        lay_tunnel(lab, parts_for(lab, options))
        wait_until(lambda: connected(lab) == 1, seconds=60)
        server, agent = the_pod(lab, "bootstrap", SERVER), the_pod(lab, WORKER, AGENT)
        assert server is not None
        assert agent is not None
        assert (server.name, server.namespace) == (f"{SERVER}-bootstrap", "kube-system")
        assert server.address == lab.topology.bootstrap.address
        pods = ipaddress.ip_network("10.92.0.0/16")
        assert (ipaddress.ip_address(agent.address) in pods) is (options.shape is Shape.OPENSHIFT)
        socket = "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket"
        assert lab.exec("bootstrap", ["test", "-S", socket]).exit_code == 0


@NAMESPACES
def test_keys_of_the_agents_are_on_no_disk_of_a_node(lab: Lab) -> None:
    secret = next(one for one in yaml.safe_load_all(lab.read(WORKER, DAEMONS)) if one["kind"] == "Secret")
    key = base64.b64decode(secret["data"]["tls.key"])
    root = lab.directory.node_root(WORKER)
    files = [path for folder in ("run", "var", "tmp") for path in (root / folder).rglob("*") if path.is_file()]
    assert files
    assert key.startswith(b"-----BEGIN")
    assert [path for path in files if key in path.read_bytes()] == []


@NAMESPACES
def test_a_user_that_a_lab_without_root_does_not_have_is_told_of(lab: Lab) -> None:
    status = lab.exec(WORKER, ["cat", f"/proc/{pid_of(lab, WORKER, AGENT)}/status"]).text
    user = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
    assert user == ("0" if lab.state.is_rootless else "65532")
    assert ("runs as root instead of user 65532" in lab.log(WORKER, NAME)) is lab.state.is_rootless


@NAMESPACES
def test_a_removed_file_stops_its_pod_and_a_changed_one_starts_it_anew(lab: Lab) -> None:
    first, before, original = pid_of(lab, "bootstrap", SERVER), starts(lab), lab.read("bootstrap", STATIC_POD)
    content = yaml.safe_load(original)
    content["metadata"]["annotations"]["changed"] = "yes"
    lab.write("bootstrap", STATIC_POD, yaml_bytes(content))
    try:
        wait_until(lambda: pid_of(lab, "bootstrap", SERVER) not in (None, first), seconds=60)
        wait_until(lambda: starts(lab) == before + 1, seconds=60)
        lab.remove("bootstrap", STATIC_POD)
        wait_until(lambda: runner_of(lab).pods(lab, "bootstrap") == [], seconds=60)
        assert listeners_on(lab, "bootstrap", 8091) == []
        assert starts(lab) == before + 1
        with pytest.raises(LabError, match="UMB837"):
            runner_of(lab).signal(lab, "bootstrap", SERVER, SERVER, signal.SIGTERM)
    finally:
        lab.write("bootstrap", STATIC_POD, original)
    wait_until(lambda: starts(lab) == before + 2, seconds=60)


@NAMESPACES
def test_a_killed_container_comes_back_and_the_one_before_is_told_of(lab: Lab) -> None:
    before = the_pod(lab, "bootstrap", SERVER)
    assert before is not None
    runner_of(lab).signal(lab, "bootstrap", SERVER, SERVER, signal.SIGKILL)

    def is_back() -> bool:
        pod = the_pod(lab, "bootstrap", SERVER)
        return pod is not None and pod.is_ready and pod.containers[0].restarts == before.containers[0].restarts + 1

    wait_until(is_back, seconds=60)
    pod = the_pod(lab, "bootstrap", SERVER)
    assert pod is not None
    assert pod.containers[0].last_exit == -signal.SIGKILL


@NAMESPACES
def test_a_runner_that_is_started_anew_takes_its_pods_along(lab: Lab) -> None:
    first = pid_of(lab, "bootstrap", SERVER)
    runner_of(lab).start(lab, "bootstrap", None)
    assert lab.exec("bootstrap", ["test", "-e", f"/proc/{first}/exe"]).exit_code != 0
    wait_until(lambda: pid_of(lab, "bootstrap", SERVER) not in (None, first), seconds=60)
    wait_until(lambda: is_ready(lab, "bootstrap", SERVER), seconds=60)


@NAMESPACES
def test_a_killed_runner_leaves_no_process_of_a_pod(lab: Lab) -> None:
    pid = pid_of(lab, WORKER, AGENT)
    lab.stop(WORKER, NAME, kill=True)
    wait_until(lambda: lab.exec(WORKER, ["test", "-e", f"/proc/{pid}/exe"]).exit_code != 0)
    # What it left (a namespace, a tmpfs) is in nobody's way.
    runner_of(lab).start(lab, WORKER, None)
    wait_until(lambda: pid_of(lab, WORKER, AGENT) not in (None, pid) and is_ready(lab, WORKER, AGENT), seconds=60)


def test_a_pod_is_called_by_its_name_or_what_comes_before_the_suffix() -> None:
    names = ("konnectivity-agent-x7k2p", "konnectivity-agent", "konnectivity-agents", "konnectivity")
    assert [is_called(name, "konnectivity-agent") for name in names] == [True, True, False, False]


def test_a_report_that_cannot_be_read_is_told_of() -> None:
    for content in (b"", b"[]", b"{}", b'{"node": "a", "pods": [{}]}', b'{"node": 1, "pods": 7}'):
        with pytest.raises(LabError, match="UMB838"):
            parse_status(content)


def test_the_runner_is_told_all_of_its_node() -> None:
    network = ipaddress.ip_network("10.92.1.0/24")
    node = Node("worker-0", LabNodeRole.WORKER, (ipaddress.ip_interface("10.91.0.21/24"),), (network,))
    words = command(node, "/etc/kubernetes/kubelet.kubeconfig")
    assert words[words.index("--node-ip") + 1] == "10.91.0.21"
    assert words[words.index("--pod-networks") + 1] == "10.92.1.0/24"
    assert words[words.index("--kubeconfig") + 1] == "/etc/kubernetes/kubelet.kubeconfig"
    assert "--kubeconfig" not in command(node, None)
    assert ProcessRunner().kind is RunnerKind.PROCESS
