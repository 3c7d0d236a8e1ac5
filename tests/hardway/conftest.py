"""A real API for tests of this room: whatever a test puts into it is gone afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, stock
from tests.support.control_plane import ControlPlane
from tests.support.live_site import live_site

from umbilical.hardway.site import Site


@pytest.fixture
def shelf(plane: ControlPlane) -> Iterator[Stock]:
    with stock(plane.kubeconfig) as shelf:
        yield shelf


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Site:
    """A master and a worker of upstream's programs; its API is real, its machines are not."""
    return live_site(tmp_path, plane)
