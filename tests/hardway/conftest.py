"""A real API for tests of this room: whatever a test puts into it is gone afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import openshift_kinds as openshift
from tests.support.api_stock import Stock, stock
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.live_site import live_site
from tests.support.made_up_smoke_test import MadeUpSmokeTest, made_up_smoke_test

from umbilical.hardway.site import Site


@pytest.fixture
def shelf(plane: ControlPlane) -> Iterator[Stock]:
    with stock(plane.kubeconfig) as shelf:
        yield shelf


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Site:
    """A master and a worker of upstream's programs; its API is real, its machines are not."""
    return live_site(tmp_path, plane)


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An API server of another cluster: other data, other keys of tokens, other users. Its kubeconfig."""
    with control_plane(tmp_path_factory.mktemp("stranger")) as plane:
        yield plane.make_kubeconfig("stranger", "system:masters")


@pytest.fixture(scope="session")
def smoke_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeUpSmokeTest]:
    with made_up_smoke_test(tmp_path_factory.mktemp("trial")) as smoke_test:
        yield smoke_test


@pytest.fixture(scope="session")
def openshift_kinds(plane: ControlPlane) -> Iterator[None]:
    """Have the API serve the kinds of OpenShift's operators."""
    with stock(plane.kubeconfig) as shelf:
        shelf.put(*openshift.definitions())
        for plural, (group, _) in openshift.KINDS.items():
            plane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.{group}", "--timeout=60s")
        yield
