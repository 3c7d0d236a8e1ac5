"""A signer and everything it signed is replaced under a live tunnel: nobody restarts, and nothing is dropped."""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.in_process import RunningServer, Stage, echo
from tests.support.live_certificates import LiveFiles, der
from tests.support.odd_certificates import replace_certificate_file
from tests.support.tunnel_client import Frontend, Tunnel, receive_exactly
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki

from umbilical.tunnel.certificates import WATCH_SECONDS
from umbilical.tunnel.settings import TlsFiles


class Rotation:
    """Two signers, and the files of a server and of its agents."""

    def __init__(self, pki: TunnelPki, folder: Path) -> None:
        (folder / "old").mkdir()
        (folder / "new").mkdir()
        self.old = FolderAuthority(folder / "old", "old-ca")
        self.new = FolderAuthority(folder / "new", "new-ca")
        self.server = LiveFiles(folder / "server")
        self.server.install(self.old.serving("server"), self.old)
        self.agent = LiveFiles(folder / "agent")
        self.agent.install(self.old.client("agent"), self.old)
        self.stage = Stage(self._pki(pki), folder)

    def _pki(self, pki: TunnelPki) -> TunnelPki:
        served = replace_certificate_file(pki, self.server.authority)
        pair = Pair(self.server.certificate, self.server.key)
        return replace(served, server=pair, client=self.old.client("client"))

    def client_of(self, server: RunningServer, signer: FolderAuthority) -> Frontend:
        """A client whose certificate and trust are the signer's alone."""
        return replace(server.frontend, tls=signer.client_context(signer.client("client"), ["http/1.1"]))


@pytest.fixture
def rotation(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[Rotation]:
    rotation = Rotation(tunnel_pki, tmp_path)
    yield rotation
    rotation.stage.stop()


def reloads(text: bytes) -> dict[str, int]:
    """By role, those that succeeded."""
    family = "umbilical_certificate_reloads_total{"
    lines = [line for line in text.decode().splitlines() if line.startswith(family)]
    assert all('result="success"' in line for line in lines), lines
    return {line.partition('role="')[2].partition('"')[0]: int(line.rpartition(" ")[2]) for line in lines}


def cut(server: RunningServer) -> None:
    for transport in list(server.server.exchange.transports):
        transport.lose("cut")


def assert_echoes(tunnel: Tunnel, octets: bytes) -> None:
    tunnel.send(octets)
    assert receive_exactly(tunnel, len(octets)) == octets


def test_a_signer_and_both_certificates_are_replaced_under_a_live_tunnel(
    rotation: Rotation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, old, new = rotation.stage, rotation.old, rotation.new
    server = stage.start_server(tcp=True)
    agent = stage.start_agent(server.agent_port, tls=rotation.agent.files)
    server.wait_for_agents()
    endpoint = stage.endpoint().serve(echo)
    tunnel = server.frontend.open(endpoint.address)
    assert_echoes(tunnel, b"before")

    def taken(count: int) -> bool:
        both = {"agent-listener": count, "frontend": count}
        return reloads(server.server.render_metrics()) == both and reloads(
            agent.agent.metrics.render(agent.agent.gauges())
        ) == {"agent": count}

    def wait_until_taken(count: int) -> None:
        stage.skip(WATCH_SECONDS, monkeypatch)
        stage.eventually(lambda: taken(count))
        assert_echoes(tunnel, b"step %d" % count)

    for live in (rotation.server, rotation.agent):
        live.trust(new, old)
    wait_until_taken(1)
    rotation.server.install_pair(new.serving("server"))
    rotation.agent.install_pair(new.client("agent"))
    wait_until_taken(2)
    for live in (rotation.server, rotation.agent):
        live.trust(new)
    wait_until_taken(3)

    stage.start_agent(server.agent_port, tls=rotation.agent.files)
    server.wait_for_agents(2)
    fresh = rotation.client_of(server, new)
    with fresh.connect() as sock:
        assert isinstance(sock, ssl.SSLSocket)
        assert sock.getpeercert(binary_form=True) == der(rotation.server.certificate)
    assert_echoes(fresh.open(endpoint.address), b"after")

    late = old.client("late")
    stage.start_agent(server.agent_port, tls=TlsFiles(late.certificate, late.key, new.certificate_file))
    stage.eventually(lambda: "UMB305" in caplog.text)
    assert server.gauges().connect_streams == 2
    assert_echoes(tunnel, b"the first tunnel still")

    # The agent that has been here all along comes back with what it took meanwhile.
    stage.call(lambda: cut(server))
    server.wait_for_agents(2)
    assert_echoes(fresh.open(endpoint.address), b"again")


def test_a_bad_file_keeps_listeners_and_agents_on_the_old_ones(
    rotation: Rotation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = rotation.stage
    server = stage.start_server(tcp=True)
    stage.start_agent(server.agent_port, tls=rotation.agent.files)
    server.wait_for_agents()
    rotation.server.certificate.write_bytes(rotation.server.certificate.read_bytes()[:100])
    rotation.agent.key.unlink()
    stage.skip(WATCH_SECONDS, monkeypatch)  # the first look, which may have come between two writes
    stage.skip(WATCH_SECONDS, monkeypatch)
    stage.eventually(lambda: caplog.text.count("UMB343") >= 2 and "UMB344" in caplog.text, 4 * WATCH_SECONDS)
    assert caplog.text.count("UMB343") == 2, "one for each listener"
    other = rotation.old.client("other")
    trusted = rotation.old.certificate_file
    stage.start_agent(server.agent_port, tls=TlsFiles(other.certificate, other.key, trusted))
    server.wait_for_agents(2)
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert_echoes(tunnel, b"served with the old ones")
