"""The status of real servers and agents: against the schema, of several workers as one, and when things break."""

import asyncio
import json
import logging
import os
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support import status_schema
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.daemons import answers, get, kill_self, server_settings
from tests.support.in_process import Stage, echo, listening, refused_address
from tests.support.tunnel_client import DialRefused, Tunnel, assert_echoes, close_leftovers
from tests.support.tunnel_pair import Shape, TunnelPair, http_get, metric, wait_until
from tests.support.tunnel_pki import TunnelPki

from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.metrics import ServerMetrics
from umbilical.tunnel.server_process import run_server
from umbilical.tunnel.settings import ListenAddress, ServerSettings, TlsFiles, UnixFrontend
from umbilical.tunnel.status.agent_status import AgentStatus
from umbilical.tunnel.status.routes import StatusSource, encode
from umbilical.tunnel.status.server_status import ServerStatus

SNAPSHOT = Path(__file__).with_name("idle_server.json")
Document = dict[str, Any]


async def status(place: ListenAddress | UnixFrontend, query: str = "") -> Document:
    """The document, which must fit the schema."""
    code, body = await get(place, f"/v1/status{query}", host="127.0.0.1")
    assert code == 200, body
    document: Document = json.loads(body)
    status_schema.check(document)
    return document


class Seen:
    """A server and its agent on a stage, and what each tells about itself."""

    def __init__(self, stage: Stage, mode: str = "http-connect", agent: dict[str, Any] | None = None, **settings: Any):
        self.stage = stage
        self.running = stage.start_server(mode, **settings)
        self.attending = stage.start_agent(self.running.agent_port, **(agent or {}))
        self.running.wait_for_agents()
        self.attending.wait_until_ready()
        self.of_server = ServerStatus(self.running.server)
        self.of_agent = AgentStatus(self.attending.agent)

    def server(self, most: int = 1000) -> Document:
        return told(self.stage, self.of_server, most)

    def agent(self, most: int = 1000) -> Document:
        return told(self.stage, self.of_agent, most)

    def both(self) -> tuple[Document, Document]:
        return self.server(), self.agent()

    def open(self, address: str) -> Tunnel:
        return self.running.frontend.open(address)


def told(stage: Stage, source: StatusSource, most: int = 1000) -> Document:
    async def ask() -> bytes:
        document = await source.document(most, "")
        assert document is not None
        return await encode(document)

    found: Document = json.loads(stage.run(ask()))
    status_schema.check(found)
    return found


def until(stage: Stage, source: StatusSource, word: str) -> Document:
    wait_until(lambda: told(stage, source)["state"] == word, f"the state is {word}")
    return told(stage, source)


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_server_and_agent_show_a_tunnel_from_both_sides(stage: Stage, mode: str) -> None:
    seen = Seen(stage, mode, {"agent_identifiers": "host=worker-1&ipv4=10.0.0.5&default-route=true"})
    address = stage.endpoint().serve(echo).address
    tunnel = seen.open(address)
    assert_echoes(tunnel, b"12345")
    server, agent = seen.both()
    (item,), (other,) = server["tunnels"]["items"], agent["tunnels"]["items"]
    assert item["dialId"] == other["dialId"]
    assert (item["endpoint"], item["agent"], item["state"], item["slow"]) == (address, "agent-0", "open", None)
    assert item["client"] == f"uid={os.getuid()} pid={os.getpid()}"
    assert (item["bytesFromClient"], item["bytesToClient"]) == (5, 5)
    assert (other["bytesToEndpoint"], other["bytesFromEndpoint"], other["server"]) == (5, 5, "server-0")
    (connected,) = server["agents"]["items"]
    assert (connected["node"], connected["identity"]) == ("worker-1", ["CN=proxy-agent"])
    assert connected["program"].startswith("umbilical-agent/")
    assert (server["state"], agent["state"]) == ("healthy", "healthy")
    assert (server["dials"]["succeeded"], agent["dials"]["succeeded"]) == (1, 1)
    assert seen.server(0)["tunnels"] == {"count": 1, "dialling": 0, "shown": 0, "items": []}
    tunnel.close()


def test_a_client_over_tls_is_named_by_its_certificate(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "umbilical.tunnels")
    seen = Seen(stage, "http-connect", tcp=True)
    tunnel = seen.open(stage.endpoint().serve(echo).address)
    assert_echoes(tunnel)
    (item,) = seen.server()["tunnels"]["items"]
    assert item["client"] == "CN=proxy-client"
    tunnel.close()
    seen.running.wait_until_quiet()
    assert any(' client="CN=proxy-client" agent=agent-0 ' in line for line in caplog.messages)


def test_an_idle_server_looks_like_this(stage: Stage) -> None:
    assert _timeless(Seen(stage).server()) == json.loads(SNAPSHOT.read_text())


def _timeless(part: Any, name: str = "") -> Any:
    """Replace what differs from run to run."""
    if isinstance(part, dict):
        return {key: _timeless(value, key) for key, value in part.items()}
    if isinstance(part, list):
        return [_timeless(each, name) for each in part]
    if name in ("time", "since", "startedAt", "notBefore", "notAfter"):
        return "2026-01-01T00:00:00Z"
    if name in ("pid", "budgetBytes", "address", "version", "form", "program", "reason", "text"):
        return name
    return Path(part).name if name == "path" else 0.5 if isinstance(part, float) else part


def test_a_failed_dial_shows_its_reason_on_both_sides_and_degrades(stage: Stage) -> None:
    seen = Seen(stage)
    assert [one["reasons"][0]["rule"] for one in seen.both()] == ["no-traffic", "no-traffic"]
    address = refused_address()
    for target in (address, address, address, PROBE_ADDRESS):  # the last is a probe, which an agent answered
        with pytest.raises(DialRefused):
            seen.open(target)
    for found in seen.both():
        assert (found["state"], found["reasons"][0]["rule"]) == ("degraded", "dials-fail")
        assert found["dials"]["failedByCode"] == {"UMB401": 3}
        assert [one["endpoint"] for one in found["dials"]["failures"]] == [address] * 3
        assert "UMB401: dial tcp" in found["reason"]
        assert "connection refused" in found["reason"]
    (connected,) = seen.server()["agents"]["items"]
    assert (connected["lastError"]["code"], connected["lastError"]["about"]) == ("UMB401", address)


def test_a_slow_client_is_named_by_both_sides(stage: Stage) -> None:
    seen = Seen(stage)
    endpoint = stage.endpoint()
    tunnel = seen.open(endpoint.address)
    with endpoint.accept() as sock:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.sendall(bytes(1 << 28))  # more than all windows and buffers on the way
        server, agent = seen.both()
    (item,) = server["tunnels"]["items"]
    assert (item["slow"], item["bytesWaitingForClient"] > 0) == ("client", True)
    assert agent["tunnels"]["items"][0]["slow"] == "client"
    tunnel.close()


async def test_a_server_without_agents_is_down_and_says_who_was_refused(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    settings = server_settings(tunnel_pki, tmp_path)
    task = own_task(run_server(settings, None))
    try:
        await answers(settings.health_listen, "/healthz", 200)
        assert (await status(settings.admin_listen))["reason"] == "no agent is connected"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", settings.agent_listen.port, ssl=context)
        with pytest.raises((ssl.SSLError, ConnectionError)):  # it has no certificate
            await reader.readexactly(1)
        writer.transport.abort()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (found := await status(settings.admin_listen))["agents"]["refused"]:
                await asyncio.sleep(0.02)
        assert found["agents"]["refused"][0]["code"] == "UMB306"
        assert re.search(r"^no agent is connected; the last that tried was refused: 127\.0\.0\.1:", found["reason"])
        assert 'umbilical_state{state="down"} 1' in (await get(settings.admin_listen, "/metrics"))[1]
    finally:
        await end_task(task)


def _port(settings: ServerSettings) -> int:
    assert isinstance(settings.admin_listen, ListenAddress)
    return settings.admin_listen.port


def test_an_agent_that_is_lost_degrades_until_another_takes_its_place(stage: Stage) -> None:
    seen = Seen(stage, expected_agents=2)
    port, source = seen.running.agent_port, seen.of_server
    assert seen.server()["reason"] == "1 of 2 agents connected"
    second = stage.start_agent(port, agent_id="b")
    until(stage, source, "idle")
    second.connecting.cancel()
    stage.call(second.agent.links()[0].channel.reset)
    found = until(stage, source, "degraded")
    assert re.match("1 of 2 agents connected: agent b was lost [0-9]+ s ago: UMB302 ", found["reason"])
    assert [one["id"] for one in found["agents"]["lost"]] == ["b"]
    stage.start_agent(port, agent_id="c")
    assert until(stage, source, "idle")["agents"]["lost"] == []


def test_an_agent_names_the_server_that_it_does_not_reach(stage: Stage) -> None:
    closed = refused_address()
    server = stage.start_server()
    agent = stage.start_agent(server.agent_port, int(closed.rpartition(":")[2]))
    agent.wait_until_ready()
    source = AgentStatus(agent.agent)
    found = until(stage, source, "degraded")
    assert found["reasons"][0]["rule"] == "server-missing"
    assert re.match(rf"{closed} is not reached: UMB311 TCP: .*refused", found["reason"])
    assert [one["id"] for one in found["servers"]["items"]] == ["server-0"]
    stage.call(server.server.close)
    assert until(stage, source, "down")["reason"].startswith("no server is connected; ")


class OneLease:
    """A publisher whose lease was renewed so long ago."""

    def __init__(self, ago: float | None) -> None:
        self.ago = ago

    def __call__(self, _: ServerMetrics) -> "OneLease":
        return self

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def withdraw(self) -> None: ...

    def describe(self) -> list[dict[str, object]]:
        lease: dict[str, object] = {"server": "s", "name": "konnectivity-proxy-server-s", "address": "10.0.0.1:8091"}
        return [lease | {"renewedAgoSeconds": self.ago, "error": "UMB603 GET: no answer"}]


async def test_a_lease_that_is_not_renewed_degrades(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    settings = server_settings(tunnel_pki, tmp_path)
    publisher = OneLease(31.0)
    task = own_task(run_server(settings, None, publish=publisher))
    try:
        await answers(settings.health_listen, "/healthz", 200)
        found = await status(settings.admin_listen)
        text = "the lease of s was last renewed 31 s ago: UMB603 GET: no answer"
        assert found["reasons"][1] == {"rule": "lease-not-renewed", "text": text}
        publisher.ago = 3.0
        assert len((await status(settings.admin_listen))["reasons"]) == 1
    finally:
        kill_self()
        assert await task == 0


async def test_the_certificate_of_the_admin_port_is_listed(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    own = tunnel_pki.server
    tls = TlsFiles(own.certificate, own.key)
    settings = server_settings(tunnel_pki, tmp_path, admin_tls=tls, health_listen=ListenAddress("127.0.0.1", 0))
    task = own_task(run_server(settings, None))
    context = tunnel_pki.authority.client_context(tunnel_pki.client, [])
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", _port(settings), ssl=context)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
        writer.write(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
        writer.close()
        assert "admin" in [one["role"] for one in found["certificates"]]
    finally:
        await end_task(task)


@pytest.fixture(scope="module")
def workers(tunnel_pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pair = TunnelPair(Shape(workers=2), tunnel_pki, tmp_path_factory.mktemp("workers"))
    try:
        pair.start()
        wait_until(lambda: pair.agent_metric("open_server_connections") == 2, "the agent holds both workers")
        yield pair
    finally:
        print(pair.logs())
        pair.stop()
        close_leftovers()


def of_port(port: int, query: str = "") -> Document:
    code, body = http_get(f"http://127.0.0.1:{port}/v1/status{query}")
    assert code == 200, body
    document: Document = json.loads(body)
    status_schema.check(document)
    return document


def test_the_workers_of_a_server_tell_one_status(workers: TunnelPair) -> None:
    admin = workers.ports.server_admin
    with listening() as endpoint:
        address = endpoint.serve(echo).address
        tunnels = [workers.frontend().open(address) for _ in range(4)]
        for tunnel in tunnels:
            assert_echoes(tunnel)
        with pytest.raises(DialRefused):
            workers.frontend().open(refused_address())
        found = of_port(admin, "?tunnels=3")
        assert (found["state"], found["server"]["id"], found["agents"]["count"]) == ("healthy", "s1", 1)
        assert [one["id"] for one in found["server"]["workers"]] == ["s1-0", "s1-1"]
        assert [one["pid"] for one in found["server"]["workers"]] == workers.worker_pids()
        assert (found["tunnels"]["count"], found["tunnels"]["shown"], len(found["tunnels"]["items"])) == (4, 3, 3)
        assert (found["dials"]["succeeded"], found["dials"]["failed"]) == (4, 1)
        assert {one["server"] for one in found["agents"]["items"]} == {"s1-0", "s1-1"}
        assert [of_port(admin, f"?worker={number}")["server"]["id"] for number in (0, 1)] == ["s1-0", "s1-1"]
        assert http_get(f"http://127.0.0.1:{admin}/v1/status?worker=2")[0] == 404
        assert metric(admin, "umbilical_state") == 1
        assert 'umbilical_state{state="healthy"} 1' in http_get(f"http://127.0.0.1:{admin}/metrics")[1]
        seen = of_port(workers.ports.agent_admin)
        assert (seen["state"], seen["servers"]["count"], seen["servers"]["expected"]) == ("healthy", 2, 2)
