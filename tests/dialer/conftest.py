"""Fixtures: a real server and agent in this process, and certificates that are created once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.in_process import Stage
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki


@pytest.fixture(scope="session")
def tunnel_pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def stage(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[Stage]:
    """An empty stage; everything that a test starts on it is stopped and must leave nothing open."""
    stage = Stage(tunnel_pki, tmp_path)
    yield stage
    stage.stop()
