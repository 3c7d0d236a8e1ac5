"""The real HAProxy before, at and after the pivot: who answers, and that no new connection fails."""

import json
import signal
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.support.hardway_infrastructure import ApiServer, api_server, infrastructure, loopback_cluster

from umbilical.assets.hardway.cluster import Cluster, Profile
from umbilical.assets.hardway.infrastructure.places import (
    HAPROXY_BOOTSTRAP,
    HAPROXY_FINAL,
    OWN_PLACES,
    SERVER_CA,
    balancer_command,
)
from umbilical.host.processes import Child, start

pytestmark = pytest.mark.real("haproxy")

PATIENCE_SECONDS: Final = 60.0
PROBE_SECONDS: Final = 20.0


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
        """What HAProxy itself says of the servers of the API."""
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
    of = loopback_cluster(Profile.KUBERNETES, masters=2, workers=0)
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


def test_the_pivot_shows_no_failed_probe_and_no_request_reaches_a_master_before_it(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        prober = Prober(scene)
        with prober.running():
            scene.wait(lambda: len(prober.answers) >= 10)
            assert set(prober.answers) == {"bootstrap"}
            scene.configure(HAPROXY_FINAL)
            scene.wait(lambda: prober.has_seen("master-0", "master-1"))
            scene.servers["bootstrap"].is_ready = False
            seen = len(prober.answers)
            scene.wait(lambda: len(prober.answers) >= seen + 20)
        assert prober.failures == []
        assert set(prober.answers[seen:]) == {"master-0", "master-1"}
        assert "bootstrap" not in "".join(scene.states())


def test_the_way_back_shows_no_failed_probe_either(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        prober = Prober(scene)
        with prober.running():
            scene.configure(HAPROXY_FINAL)
            scene.wait(lambda: prober.has_seen("master-0", "master-1"))
            scene.configure(HAPROXY_BOOTSTRAP)
            scene.wait(lambda: prober.answers[-3:] == ["bootstrap"] * 3)
        assert prober.failures == []


def test_all_masters_take_over_when_the_bootstrap_node_is_not_ready_any_more(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        prober = Prober(scene)
        with prober.running():
            scene.servers["bootstrap"].is_ready = False
            scene.wait(lambda: prober.has_seen("master-0", "master-1"))
            assert scene.states()[scene.cluster.bootstrap.name].startswith("DOWN L7STS")
        assert prober.failures == []


def test_a_server_of_another_signer_is_not_believed(tmp_path: Path) -> None:
    with _scene(tmp_path) as scene:
        stranger = infrastructure(scene.cluster)[SERVER_CA].content.split(b"-----END CERTIFICATE-----\n")[0]
        (tmp_path / "haproxy-server-ca.crt").write_bytes(stranger + b"-----END CERTIFICATE-----\n")
        scene.configure(HAPROXY_FINAL)
        scene.wait(lambda: {state.split()[-1] for state in scene.states().values()} == {"L6RSP"})
