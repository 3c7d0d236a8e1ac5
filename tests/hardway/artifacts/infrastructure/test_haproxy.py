"""HAProxy's two configurations: who is in which, and the real program before, at and after the pivot."""

import ipaddress
import json
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest
from tests.support.hardway import cluster
from tests.support.hardway_infrastructure import ApiServer, api_server, infrastructure, loopback_cluster

from umbilical.hardway.artifacts.infrastructure.haproxy import haproxy_bootstrap, haproxy_final, socket_address
from umbilical.hardway.artifacts.infrastructure.places import (
    HAPROXY_BOOTSTRAP,
    HAPROXY_FINAL,
    OWN_PLACES,
    SERVER_CA,
    balancer_command,
)
from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind
from umbilical.host.processes import Child, start
from umbilical.manifests.tree import Asset

PATIENCE_SECONDS: Final = 60.0
PROBE_SECONDS: Final = 20.0


def _servers(config: bytes, backend: str) -> list[list[str]]:
    section = config.decode().split(f"backend {backend}\n")[-1].split("\n\n")[0]
    return [line.split() for line in section.splitlines() if line.split()[:1] == ["server"]]


def test_before_the_pivot_the_bootstrap_node_serves_and_the_masters_stand_by() -> None:
    of = cluster()
    for backend in ("api", "machine-config"):
        servers = _servers(haproxy_bootstrap(of), backend)
        assert [words[1] for words in servers] == [of.bootstrap.name, *(node.name for node in of.masters)]
        assert ["backup" in words for words in servers] == [False, True, True, True]


def test_routers_are_asked_on_their_own_plain_port_are_masters_without_workers_and_none_in_kubernetes() -> None:
    servers = _servers(haproxy_final(cluster()), "ingress-https")
    assert [words[3:6] for words in servers] == [["check", "port", "1936"]] * 2
    alone = cluster(masters=3, workers=0)
    names = [words[1] for words in _servers(haproxy_final(alone), "ingress-http")]
    assert names == [node.name for node in alone.masters]
    text = haproxy_bootstrap(cluster(ClusterProfile.KUBERNETES)).decode()
    assert [line for line in text.splitlines() if line.startswith("backend")] == ["backend api"]


def test_addresses_of_the_sixth_version_stand_in_brackets() -> None:
    assert socket_address(ipaddress.ip_address("fd00::10"), 6443) == "[fd00::10]:6443"
    assert socket_address(ipaddress.ip_address("10.0.0.1"), 6443) == "10.0.0.1:6443"


@pytest.mark.real("haproxy")
@pytest.mark.parametrize("machines", list(MachinesKind))
def test_haproxy_takes_both_files_without_a_warning(machines: MachinesKind, tmp_path: Path) -> None:
    for of in (
        cluster(ClusterProfile.OPENSHIFT),
        cluster(ClusterProfile.KUBERNETES),
        cluster(ClusterProfile.KUBERNETES, 1, 0),
    ):
        tree = infrastructure(replace(of, machines=machines))
        for asset in tree:
            if asset.path.endswith(".crt"):
                (tmp_path / Path(asset.path).name).write_bytes(asset.content)
        assert [_complaint(tree[path], tmp_path) for path in (HAPROXY_BOOTSTRAP, HAPROXY_FINAL)] == ["", ""]


def _complaint(asset: Asset, folder: Path) -> str:
    (folder / OWN_PLACES.config).write_bytes(asset.content.replace(b"/etc/haproxy/", f"{folder}/".encode()))
    command = ["haproxy", "-c", "-C", str(folder), "-f", OWN_PLACES.config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 or done.stderr
    return done.stderr


@dataclass
class Scene:
    """A running load balancer before three API servers on loopback."""

    cluster: Cluster
    folder: Path
    servers: dict[str, ApiServer]
    balancer: Child
    context: ssl.SSLContext

    def configure(self, path: str) -> None:
        _write(self.cluster, path, self.folder)
        self.balancer.send_signal(signal.SIGUSR2)

    def answer(self) -> str:
        url = f"https://{self.cluster.networks.api_vip}:6443/version"
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS, context=self.context) as response:
            return str(response.read().decode())

    def states(self) -> dict[str, str]:
        """HAProxy's own report about the API's servers."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PROBE_SECONDS)
            client.connect(str(self.folder / "stats.sock"))
            client.sendall(b"show stat json\n")
            text = b"".join(iter(lambda: client.recv(65536), b""))
        rows = [{one["field"]["name"]: one["value"]["value"] for one in row} for row in json.loads(text)]
        return {
            row["svname"]: f"{row['status']} {row.get('check_status', '')}"
            for row in rows
            if row["pxname"] == "api" and row["svname"] not in ("FRONTEND", "BACKEND")
        }

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _is_so(what):
            assert time.monotonic() < deadline, f"{self.states()}\n{self.balancer.log_text()}"
            time.sleep(0.1)


def _write(of: Cluster, path: str, folder: Path) -> None:
    content = infrastructure(of)[path].content
    # The statistics' port is the machine's; here they are looked at by the socket.
    stats = f"{of.networks.gateway}:9000".encode()
    (folder / OWN_PLACES.config).write_bytes(content.replace(b"127.0.0.1:9000", stats))


def _is_so(what: Callable[[], bool]) -> bool:
    try:
        return what()
    except OSError:
        return False


@contextmanager
def _scene(folder: Path) -> Iterator[Scene]:
    of = loopback_cluster(ClusterProfile.KUBERNETES, masters=2, workers=0)
    ca = infrastructure(of)[SERVER_CA].content
    (folder / "haproxy-server-ca.crt").write_bytes(ca)
    context = ssl.create_default_context(cadata=ca.decode())
    # The servers' certificates are for their own addresses; who they are is not the question here.
    context.check_hostname = False
    with ExitStack() as stack:
        nodes = (of.bootstrap, *of.masters)
        servers = {node.id: stack.enter_context(api_server(node.id, str(node.address), folder)) for node in nodes}
        _write(of, HAPROXY_BOOTSTRAP, folder)
        balancer = stack.enter_context(start(balancer_command(str(folder)), folder / "haproxy.log"))
        scene = Scene(of, folder, servers, balancer, context)
        scene.wait(lambda: len(scene.states()) == 3 and all("L7OK" in state for state in scene.states().values()))
        yield scene


@dataclass
class Prober:
    """Opens a new connection every 100 ms, as the pipeline does during the pivot."""

    scene: Scene
    answers: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator["Prober"]:
        stop = threading.Event()
        thread = threading.Thread(target=self._probe, args=(stop,), name="prober")
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)

    def _probe(self, stop: threading.Event) -> None:
        while not stop.wait(0.1):
            try:
                self.answers.append(self.scene.answer())
            except OSError as error:
                self.failures.append(str(error))

    def has_seen(self, *names: str) -> bool:
        return set(names) <= set(self.answers[-len(names) * 2 :])


@pytest.mark.real("haproxy")
def test_the_pivot_and_the_way_back_show_no_failed_probe_and_no_request_reaches_a_master_before(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        prober = Prober(scene)
        with prober.running():
            scene.wait(lambda: len(prober.answers) >= 10)
            assert set(prober.answers) == {"bootstrap"}
            scene.configure(HAPROXY_FINAL)
            scene.wait(lambda: prober.has_seen("master-0", "master-1"))
            scene.configure(HAPROXY_BOOTSTRAP)
            scene.wait(lambda: prober.answers[-3:] == ["bootstrap"] * 3)
            scene.configure(HAPROXY_FINAL)
            scene.wait(lambda: prober.has_seen("master-0", "master-1"))
            scene.servers["bootstrap"].is_ready = False
            seen = len(prober.answers)
            scene.wait(lambda: len(prober.answers) >= seen + 20)
        assert prober.failures == []
        assert set(prober.answers[seen:]) == {"master-0", "master-1"}
        assert "bootstrap" not in "".join(scene.states())


@pytest.mark.real("haproxy")
def test_all_masters_take_over_when_the_bootstrap_node_is_not_ready_any_more(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        prober = Prober(scene)
        with prober.running():
            scene.servers["bootstrap"].is_ready = False
            scene.wait(lambda: prober.has_seen("master-0", "master-1"))
            assert scene.states()[scene.cluster.bootstrap.name].startswith("DOWN L7STS")
        assert prober.failures == []


@pytest.mark.real("haproxy")
def test_a_server_of_another_signer_is_not_believed(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        stranger = infrastructure(scene.cluster)[SERVER_CA].content.split(b"-----END CERTIFICATE-----\n")[0]
        (tmp_path / "haproxy-server-ca.crt").write_bytes(stranger + b"-----END CERTIFICATE-----\n")
        scene.configure(HAPROXY_FINAL)
        scene.wait(lambda: {state.split()[-1] for state in scene.states().values()} == {"L6RSP"})
