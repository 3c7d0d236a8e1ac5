"""What tests of the data plane share: a loop that is closed again, sockets likewise, and certificates made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import socket_pairs
from tests.support.data_plane import HandClock
from tests.support.in_process import Stage
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.tunnel.loop import Loop


@pytest.fixture(autouse=True)
def _no_socket_is_left() -> Iterator[None]:
    yield
    socket_pairs.close_all()


@pytest.fixture
def plane() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def clock(plane: Loop, monkeypatch: pytest.MonkeyPatch) -> HandClock:
    return HandClock(plane, monkeypatch)


@pytest.fixture(scope="session")
def tunnel_pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def stage(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[Stage]:
    """An empty stage; whoever a test starts on it is stopped, and must leave nothing behind."""
    stage = Stage(tunnel_pki, tmp_path)
    yield stage
    stage.stop()
