"""A server with two workers, as processes: who serves, what the supervisor says for both, and how a worker ends."""

import asyncio
import os
import re
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.daemons import answers, aside, get, server_settings
from tests.support.in_process import Stage, echo, refused_address
from tests.support.tunnel_client import (
    ConnectDial,
    DialRefused,
    SocketTunnel,
    assert_echoes,
    close_leftovers,
    receive_exactly,
)
from tests.support.tunnel_pair import Shape, TunnelPair, http_get, metric, wait_until
from tests.support.tunnel_pki import TunnelPki

from umbilical.fault import StartupError
from umbilical.tunnel import worker_process
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.interfaces import AuthenticationRefused
from umbilical.tunnel.metrics import ServerMetrics
from umbilical.tunnel.settings import CapSettings, Limits, TlsFiles
from umbilical.tunnel.supervisor import run_supervisor, worker_settings

StartPair = Callable[..., TunnelPair]
MODES = pytest.mark.parametrize("mode", ["http-connect", "grpc"])


@pytest.fixture
def start(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[StartPair]:
    with ExitStack() as stack:

        def start_pair(
            mode: str = "http-connect", frontend: str = "uds", connected: int = 2, **flags: Any
        ) -> TunnelPair:
            flags["server_flags"] = ["--workers=2", *flags.get("server_flags", ())]
            pair = TunnelPair(Shape(mode=mode, frontend=frontend), tunnel_pki, tmp_path, **flags)
            stack.callback(lambda: print(pair.logs()))
            stack.callback(pair.stop)
            pair.start()
            wait_until(lambda: pair.agent_metric("open_server_connections") == connected, "the agent holds its workers")
            return pair

        yield start_pair
    close_leftovers()


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def passed(pair: TunnelPair) -> list[float]:
    _, text = http_get(f"http://127.0.0.1:{pair.ports.server_admin}/metrics")
    return [float(value) for value in re.findall(r"^umbilical_worker_clients_total\{.*\} (\d+)$", text, re.MULTILINE)]


@MODES
@pytest.mark.parametrize("frontend", ["uds", "tcp-mtls"])
def test_both_workers_serve_clients_and_speak_as_one_server(
    start: StartPair, stage: Stage, mode: str, frontend: str
) -> None:
    pair = start(mode, frontend)
    endpoint = stage.endpoint().serve(echo)
    before = passed(pair)
    tunnels = [pair.frontend().open(endpoint.address) for _ in range(6)]
    for tunnel in tunnels:
        assert_echoes(tunnel)
    assert [after - earlier for earlier, after in zip(before, passed(pair), strict=True)] == [3, 3]
    assert pair.server_metric("established_connections") == 6
    assert pair.server_metric("ready_backends") == 1
    assert pair.server_health("/readyz") == (200, "ok")
    assert pair.server_health("/readyz/agents") == (200, "1")
    assert pair.agent_metric("known_server_count") == 2
    for tunnel in tunnels:
        tunnel.close()
    wait_until(lambda: pair.server_metric("established_connections") == 0, "all tunnels are over")


def test_a_worker_that_is_killed_is_replaced_and_no_counter_falls(start: StartPair, stage: Stage) -> None:
    pair = start()
    endpoint = stage.endpoint().serve(echo)
    tunnels = [pair.frontend().open(endpoint.address) for _ in range(2)]
    for tunnel in tunnels:
        assert_echoes(tunnel)
    dials = pair.server_metric("dial_duration_seconds_count")
    assert dials == 2
    victim, survivor = pair.worker_pids()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: pair.agent_metric("open_server_connections") == 1, "the agent has lost it")
    assert pair.server_metric("dial_duration_seconds_count") >= dials
    wait_until(lambda: pair.agent_metric("open_server_connections") == 2, "the agent has found its successor")
    assert survivor in pair.worker_pids()
    assert victim not in pair.worker_pids()
    assert sum(_lives(tunnel) for tunnel in tunnels) == 1
    assert metric(pair.ports.server_admin, "umbilical_worker_replacements_total") == 1
    for _ in range(4):
        assert_echoes(pair.frontend().open(endpoint.address))
    assert pair.server_metric("dial_duration_seconds_count") >= dials + 4


def _lives(tunnel: Any) -> bool:
    try:
        assert_echoes(tunnel)
    except (AssertionError, OSError):
        return False
    return True


@MODES
def test_a_stop_waits_for_the_tunnels_of_all_workers(start: StartPair, stage: Stage, mode: str) -> None:
    pair = start(mode, server_flags=["--graceful-shutdown-timeout=30s"])
    endpoint = stage.endpoint().serve(echo)
    tunnels = [pair.frontend().open(endpoint.address) for _ in range(4)]
    pair.server.signal(signal.SIGTERM)
    wait_until(lambda: pair.server_health("/readyz")[0] == 500, "it is not ready any more")
    assert not pair.socket_path.exists()
    for tunnel in tunnels:
        assert_echoes(tunnel)
        tunnel.close()
    assert pair.server.wait() == 0


def test_a_second_signal_ends_all_workers_at_once(start: StartPair, stage: Stage) -> None:
    pair = start(server_flags=["--graceful-shutdown-timeout=1h"])
    tunnel = pair.frontend().open(stage.endpoint().serve(echo).address)
    workers = pair.worker_pids()
    pair.server.signal(signal.SIGTERM)
    wait_until(lambda: pair.server_health("/readyz")[0] == 500, "it is not ready any more")
    assert_echoes(tunnel)
    pair.server.signal(signal.SIGTERM)
    assert pair.server.wait() == 1
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_workers_do_not_outlive_a_supervisor_that_is_killed(start: StartPair) -> None:
    pair = start()
    workers = pair.worker_pids()
    pair.server.kill()
    wait_until(lambda: not any(_runs(pid) for pid in workers), "the workers have ended")


def test_a_supervisor_that_is_killed_is_a_server_that_is_gone_and_no_agent_is_blamed(start: StartPair) -> None:
    pair = start()
    pair.agent.signal(signal.SIGSTOP)  # the dial gets no answer
    dial = pair.frontend().dial("127.0.0.1:1")
    assert isinstance(dial, ConnectDial)
    wait_until(lambda: pair.server_metric("pending_backend_dials") == 1, "the dial is under way")
    pair.server.kill()
    dial.socket.settimeout(10)
    assert dial.socket.recv(100) == b""


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_profiles_are_of_the_worker_that_is_named(start: StartPair) -> None:
    pair = start(server_flags=["--enable-profiling"])
    admin = f"http://127.0.0.1:{pair.ports.server_admin}/debug/pprof/goroutine"
    assert "cli/worker.py" not in http_get(admin)[1]
    for index in range(2):
        assert "cli/worker.py" in http_get(f"{admin}?worker={index}")[1]
    assert http_get(f"{admin}?worker=2") == (404, "no such worker; they are numbered from 0 to 1\n")


def test_a_certificate_that_cannot_be_used_ends_the_start(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    flags = ["--workers=2", f"--cluster-key={tunnel_pki.agent.key}"]
    pair = TunnelPair(Shape(), tunnel_pki, tmp_path, server_flags=flags)
    pair.server.start()
    assert pair.server.wait() == 1
    assert "key values mismatch" in pair.logs()


@MODES
@pytest.mark.parametrize("frontend", ["uds", "tcp-mtls"])
def test_a_worker_without_an_agent_relays_to_the_one_that_has_it(
    start: StartPair, stage: Stage, mode: str, frontend: str
) -> None:
    """The agent believes that there is one server, so it stays with the first worker that it met."""
    pair = start(mode, frontend, agent_flags=["--sync-interval=1h", "--sync-interval-cap=1h"], connected=1)
    endpoint = stage.endpoint().serve(echo)
    tunnels = [pair.frontend().open(endpoint.address) for _ in range(4)]
    for tunnel in tunnels:
        assert_echoes(tunnel)
    assert pair.agent_metric("open_server_connections") == 1
    assert pair.server_metric("established_connections") == 4
    assert pair.server_metric("dial_duration_seconds_count") == 4
    for tunnel in tunnels:
        transfer(tunnel)
        tunnel.close()
    wait_until(lambda: pair.server_metric("established_connections") == 0, "all tunnels are over")
    wait_until(lambda: pair.agent_metric("open_endpoint_connections") == 0, "all endpoints are closed")


def transfer(tunnel: Any) -> None:
    """There and back; more than any buffer on the way, where a test may send and receive at the same time."""
    if isinstance(tunnel, SocketTunnel) and not isinstance(tunnel.socket, ssl.SSLSocket):
        payload = os.urandom(1 << 20) * 6
        sender = threading.Thread(target=lambda: tunnel.send(payload))
        sender.start()
        assert receive_exactly(tunnel, len(payload)) == payload
        sender.join(30)
        assert not sender.is_alive()
        return
    for _ in range(16):
        payload = os.urandom(1 << 16)
        tunnel.send(payload)
        assert receive_exactly(tunnel, len(payload)) == payload


@MODES
def test_refusals_and_half_closes_come_through_a_relay_as_they_are(start: StartPair, stage: Stage, mode: str) -> None:
    pair = start(mode, agent_flags=["--sync-interval=1h", "--sync-interval-cap=1h"], connected=1)
    address = refused_address()
    for _ in range(2):
        with pytest.raises(DialRefused) as refusal:
            pair.frontend().open(address)
        assert refusal.value.text == f"dial tcp {address}: connect: connection refused"
    if mode == "http-connect":
        endpoint = stage.endpoint().serve(answer_at_the_end)
        for _ in range(2):
            tunnel = pair.frontend().open(endpoint.address)
            assert isinstance(tunnel, SocketTunnel)
            tunnel.send(b"question")
            tunnel.socket.shutdown(socket.SHUT_WR)
            assert receive_exactly(tunnel, 8) == b"noitseuq"
            assert tunnel.receive(1) == b""


def answer_at_the_end(peer: socket.socket) -> None:
    asked = b""
    while part := peer.recv(100):
        asked += part
    peer.sendall(asked[::-1])


def test_without_any_agent_no_worker_sends_a_dial_in_a_circle(start: StartPair) -> None:
    pair = start()
    pair.agent.kill()
    wait_until(lambda: pair.server_health("/readyz")[0] == 500, "no worker has an agent")
    for _ in range(4):
        with pytest.raises(DialRefused) as refusal:
            pair.frontend().open("127.0.0.1:1")
        assert "No agent available" in refusal.value.text


class Reviews:
    """An authenticator that notes what it was asked, in the supervisor's process."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def authenticate(self, token: str) -> None:
        self.asked.append(token)
        if token != "good":
            raise AuthenticationRefused("Failed to validate authentication token, err:made up")


class Leases:
    def __init__(self, metrics: ServerMetrics) -> None:
        self.metrics = metrics

    async def run(self) -> None:
        self.metrics.lease_list(200, "", 0.01)
        await asyncio.Event().wait()

    async def withdraw(self) -> None:
        self.metrics.lease_delete(200, "", 0.01)

    def describe(self) -> list[dict[str, object]]:
        return []


async def test_tokens_are_reviewed_and_leases_published_by_the_supervisor_for_all_workers(
    stage: Stage, tmp_path: Path
) -> None:
    tls = TlsFiles(stage.pki.server.certificate, stage.pki.server.key)
    settings = server_settings(stage.pki, tmp_path, workers=2, agent_tls=tls, token_identity="SA=n/a")
    reviews = Reviews()
    server = own_task(run_supervisor(settings, reviews, publish=Leases))
    await answers(settings.health_listen, "/readyz", 500)
    for name in ("good", "bad"):
        (tmp_path / name).write_text(name)
    port = settings.agent_listen.port
    refused = await aside(lambda: stage.start_agent(port, token_path=tmp_path / "bad"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reviews.asked:
            await asyncio.sleep(0.01)
    admitted = await aside(lambda: stage.start_agent(port, token_path=tmp_path / "good"))
    await aside(lambda: admitted.wait_for_servers("s-0", "s-1"))
    assert refused.gauges().open_server_connections == 0
    assert await get(settings.health_listen, "/readyz/agents") == (200, "1")
    assert {"good", "bad"} == set(reviews.asked)
    metrics = (await get(settings.health_listen, "/metrics"))[1]
    assert 'lease_list_total{http_status_code="200",reason=""} 1' in metrics
    await end_task(server)


async def test_a_worker_that_hangs_is_killed_and_replaced(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(worker_process, "HANG_SECONDS", 2.0)
    settings = server_settings(stage.pki, tmp_path, workers=2)
    before = children_of(os.getpid())
    server = own_task(run_supervisor(settings, None))
    await answers(settings.health_listen, "/healthz", 200)
    agent = await aside(lambda: stage.start_agent(settings.agent_listen.port))
    await aside(lambda: agent.wait_for_servers("s-0", "s-1"))
    hanging, other = sorted(children_of(os.getpid()) - before)
    os.kill(hanging, signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while hanging in (now := children_of(os.getpid()) - before) or len(now) < 2:
            await asyncio.sleep(0.05)
    assert other in now
    await aside(lambda: agent.wait_for_servers("s-0", "s-1"))
    await end_task(server)


async def test_a_start_that_fails_leaves_no_process_and_no_port(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    settings = server_settings(tunnel_pki, tmp_path, workers=2)
    before = children_of(os.getpid())  # of other tests in this process
    with socket.create_server(("127.0.0.1", settings.agent_listen.port)), pytest.raises(StartupError) as caught:
        await run_supervisor(settings, None)
    assert caught.value.code == "UMB023"
    assert await get(settings.health_listen, "/healthz") == (0, "")
    assert children_of(os.getpid()) == before


def test_workers_are_servers_of_their_own_that_share_the_memory_for_windows(
    tunnel_pki: TunnelPki, tmp_path: Path
) -> None:
    settings = server_settings(
        tunnel_pki, tmp_path, workers=4, server_count=3, limits=Limits(window_bytes=400, own_streams=False)
    )
    workers = [worker_settings(settings, index) for index in range(4)]
    assert [(worker.server_id, worker.server_count) for worker in workers] == [(f"s-{k}", 12) for k in range(4)]
    assert all(worker.limits.window_bytes == 100 and not worker.limits.own_streams for worker in workers)


def test_workers_share_the_limits_of_the_whole_server_and_none_stays_none(
    tunnel_pki: TunnelPki, tmp_path: Path
) -> None:
    caps = CapSettings(agents=10, agent_tunnels=20, client_tunnels=5, dial_rate=0)
    settings = server_settings(tunnel_pki, tmp_path, workers=4, caps=caps)
    assert worker_settings(settings, 0).caps == CapSettings(10, 20, 2, 0)
