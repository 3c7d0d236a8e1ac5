"""The engines behind all four commands: started, answering, stopped; and what they ask of the Kubernetes API."""

import json
import signal
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tunnel_client import Frontend, receive_exactly
from tests.support.tunnel_pair import free_port, http_get
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.cli import engines
from umbilical.host import processes
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import (
    AgentSettings,
    ListenAddress,
    ServerAddress,
    ServerSettings,
    TlsFiles,
    UnixFrontend,
)

PROGRAM = (sys.executable, "-m", "umbilical")
PATIENCE = 60.0


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(4096):
            self.request.sendall(data)


@pytest.fixture
def endpoint() -> Iterator[str]:
    with socketserver.TCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(PATIENCE)


@pytest.fixture
def pki(tmp_path: Path) -> TunnelPki:
    return make_tunnel_pki(tmp_path)


def server_settings(tmp_path: Path) -> ServerSettings:
    return ServerSettings("s1", UnixFrontend(tmp_path / "k"), ListenAddress("127.0.0.1", 0), TlsFiles())


def agent_settings() -> AgentSettings:
    return AgentSettings("a1", (ServerAddress("127.0.0.1", 1),), TlsFiles())


def test_a_coroutine_runs_on_the_tunnels_event_loop() -> None:
    async def answer() -> int:
        return 42

    assert engines.run_until_done(answer()) == 42


@pytest.mark.parametrize("content", [None, "not: [yaml", "apiVersion: v1\nkind: Config\n"])
def test_a_kubeconfig_that_cannot_be_used_stops_the_start(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    access = engines.KubernetesAccess(path)
    with pytest.raises(StartupError) as fault:
        engines.serve(server_settings(tmp_path), access, engines.TokenRule("n", "s", "a"))
    assert (fault.value.code, fault.value.what) == ("UMB601", "failed to load kubernetes client config")
    with pytest.raises(StartupError, match=r"^failed to load kubernetes client config: "):
        engines.attend(agent_settings(), access, engines.LeaseSelection("kube-system", ""))


def test_native_server_and_agent_carry_a_tunnel_and_end_in_order(tmp_path: Path, pki: TunnelPki, endpoint: str) -> None:
    agents, server_health, agent_health = free_port(), free_port(), free_port()
    server_command = (
        *(*PROGRAM, "server", "run", "--listen", f"unix:{tmp_path}/k.sock", "--mode=http-connect"),
        *("--agents", f"127.0.0.1:{agents}", "--agent-cert", pki.server.certificate, "--agent-key", pki.server.key),
        *("--agent-ca", pki.authority.certificate_file, "--health", f"127.0.0.1:{server_health}"),
        *("--admin", f"127.0.0.1:{free_port()}", "--log-format=json"),
    )
    agent_command = (
        *(*PROGRAM, "agent", "run", "--server", f"127.0.0.1:{agents}", "--ca", pki.authority.certificate_file),
        *("--cert", pki.agent.certificate, "--key", pki.agent.key, "--health", f"127.0.0.1:{agent_health}"),
        *("--admin", f"127.0.0.1:{free_port()}", "--drain-linger=100ms", "--log-format=text"),
    )
    with (
        processes.start(server_command, tmp_path / "server.log", name="server") as server,
        processes.start(agent_command, tmp_path / "agent.log", name="agent") as agent,
    ):
        server.wait_ready(lambda: http_get(f"http://127.0.0.1:{server_health}/readyz")[0] == 200, PATIENCE)
        agent.wait_ready(lambda: http_get(f"http://127.0.0.1:{agent_health}/readyz")[0] == 200, PATIENCE)
        tunnel = Frontend("http-connect", tmp_path / "k.sock").open(endpoint)
        tunnel.send(b"through")
        assert receive_exactly(tunnel, 7) == b"through"
        tunnel.close()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    lines = [json.loads(line) for line in server.log_text().splitlines()]
    assert any(line["logger"] == "umbilical.tunnels" and endpoint in line["message"] for line in lines)
    assert endpoint in agent.log_text()
    assert not (tmp_path / "k.sock").exists()


def test_a_port_that_is_taken_is_a_fault_of_the_world_outside(tmp_path: Path, pki: TunnelPki) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = (
            *(*PROGRAM, "agent", "run", "--server=127.0.0.1:1", "--ca", pki.authority.certificate_file),
            *("--health", f"127.0.0.1:{port}"),
        )
        with processes.start(command, tmp_path / "log") as child:
            assert child.wait(PATIENCE) == 4
    assert f"UMB023 cannot listen on 127.0.0.1:{port} for health" in child.log_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("server", "run", "--listen=unix:TMP/k", "--agent-cert=WRONG", "--agent-key=WRONG", "--agent-ca=WRONG"),
        ("agent", "run", "--server=127.0.0.1:1", "--ca=WRONG"),
    ],
)
def test_a_native_failure_at_start_is_three_lines(arguments: tuple[str, ...], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    words = [word.replace("WRONG", str(wrong)).replace("TMP", str(tmp_path)) for word in arguments]
    with processes.start([*PROGRAM, *words], tmp_path / "log") as child:
        assert child.wait(PATIENCE) == 3
    lines = child.log_text().splitlines()
    assert lines[-3].startswith("UMB02")
    assert [line[:7] for line in lines[-2:]] == ["  why: ", "  next:"]
