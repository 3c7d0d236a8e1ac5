"""What every interop test stands on: a namespace of its own, certificates, and running pairs that tell their logs."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.namespace import own_namespace
from tests.support.tunnel_client import close_leftovers
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

StartPair = Callable[..., TunnelPair]
# Whose programs the fault tests run. They are about ours; with upstream's one sees that they catch the faults.
FAULTY: Final = os.environ.get("UMBILICAL_FAULTS_OF", "ours")
FAULTY_REAL: Final = pytest.mark.real("ip", *(("proxy-server", "proxy-agent") if FAULTY == "upstream" else ()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the namespace, and so root and `ip`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.root)
            item.add_marker(pytest.mark.real("ip"))


@pytest.fixture(scope="module", autouse=True)
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_namespace(tmp_path_factory.mktemp("namespace")):
        yield


@pytest.fixture(autouse=True)
def no_socket_left() -> Iterator[None]:
    """Keep one test's failure from warning about its sockets in the next."""
    yield
    close_leftovers()


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def start_pair(pki: TunnelPki, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartPair]:
    """Give a function that starts a pair; all of them are stopped, and their logs shown if the test failed."""
    with ExitStack() as stack:

        def start(shape: Shape, *, agents: bool = True, **flags: Any) -> TunnelPair:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            pair = TunnelPair(shape, pki, folder, **flags)
            stack.callback(print_logs, pair)
            stack.callback(pair.stop)
            pair.start_server()
            if agents:
                pair.start_agent()
            return pair

        yield start


def print_logs(pair: TunnelPair) -> None:
    """Pytest shows this beside a failure and swallows it otherwise."""
    print(pair.logs())
