"""Fixtures: a real tunnel in this process, with mutual TLS, and a control plane."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.in_process import Stage
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.dialer.settings import TcpServer
from umbilical.hosted.access import TunnelAccess
from umbilical.tunnel.settings import TlsFiles


@pytest.fixture(scope="session")
def tunnel_pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def stage(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[Stage]:
    """An empty stage; everything that a test starts on it is stopped and must leave nothing open."""
    stage = Stage(tunnel_pki, tmp_path)
    yield stage
    stage.stop()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@dataclass(frozen=True)
class Tunnel:
    stage: Stage
    access: TunnelAccess

    @property
    def pki(self) -> TunnelPki:
        return self.stage.pki


@pytest.fixture
def tunnel(stage: Stage) -> Tunnel:
    """A server and an agent, connected."""
    server, _ = stage.start_pair(tcp=True)
    return Tunnel(stage, access_to(stage, server.frontend.port))


def access_to(stage: Stage, port: int) -> TunnelAccess:
    pki = stage.pki
    files = TlsFiles(pki.client.certificate, pki.client.key, pki.authority.certificate_file)
    return TunnelAccess(TcpServer("127.0.0.1", port), files)
