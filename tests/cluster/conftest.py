"""One real control plane for all tests of this room."""

from collections.abc import Iterator

import pytest
from tests.support.control_plane import ControlPlane, control_plane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane
