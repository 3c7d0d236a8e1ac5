"""Nothing is left behind: after many tunnels that ended in every way, files and tables are as before."""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import pytest
from tests.interop.conftest import FAULTY, FAULTY_REAL, StartPair
from tests.interop.endpoints import echo, endpoint, refused_address
from tests.interop.namespace import BLACKHOLE
from tests.support.tunnel_client import DialRefused, Frontend, receive_exactly, receive_to_end
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until

pytestmark = [FAULTY_REAL, pytest.mark.timeout(400)]

SERVER_GAUGES: Final = ("established_connections", "pending_backend_dials", "http_connections")
# Three seconds at the pace of `wait_until`.
SETTLED_LOOKS: Final = 150
PROXY_STREAMS: Final = 'grpc_connections{service_method="Proxy"}'


@dataclass(frozen=True)
class Endpoints:
    echo: str
    closing: str
    resetting: str
    flooding: str


def _close_at_first_byte(sock: socket.socket) -> None:
    sock.recv(1)


def _reset_at_first_byte(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _flood(sock: socket.socket) -> None:
    while True:
        sock.sendall(bytes(65536))


@contextmanager
def _endpoints() -> Iterator[Endpoints]:
    with ExitStack() as stack:
        behaviours = (echo, _close_at_first_byte, _reset_at_first_byte, _flood)
        yield Endpoints(*(stack.enter_context(endpoint(behaviour)) for behaviour in behaviours))


def _client_closes(frontend: Frontend, to: Endpoints) -> None:
    tunnel = frontend.open(to.echo)
    tunnel.send(b"ping")
    assert receive_exactly(tunnel, 4) == b"ping"
    tunnel.close()


def _client_aborts(frontend: Frontend, to: Endpoints) -> None:
    tunnel = frontend.open(to.echo)
    tunnel.send(bytes(100_000))
    tunnel.abort()


def _endpoint_closes(frontend: Frontend, to: Endpoints) -> None:
    tunnel = frontend.open(to.closing)
    tunnel.send(b"x")
    assert receive_to_end(tunnel) == b""
    tunnel.close()


def _endpoint_resets(frontend: Frontend, to: Endpoints) -> None:
    tunnel = frontend.open(to.resetting)
    tunnel.send(b"x")
    receive_to_end(tunnel)
    tunnel.close()


def _client_goes_in_a_flood(frontend: Frontend, to: Endpoints) -> None:
    tunnel = frontend.open(to.flooding)
    tunnel.receive(1000)
    tunnel.abort()


def _both_close(frontend: Frontend, to: Endpoints) -> None:
    tunnel = frontend.open(to.closing)
    tunnel.send(b"x")
    tunnel.close()


def _dial_is_refused(frontend: Frontend, to: Endpoints) -> None:
    with pytest.raises(DialRefused):
        frontend.open(refused_address())


def _client_goes_during_the_dial(frontend: Frontend, to: Endpoints) -> None:
    frontend.dial(f"{BLACKHOLE}:4321").abandon()


def _client_goes_as_the_dial_succeeds(frontend: Frontend, to: Endpoints) -> None:
    frontend.dial(to.echo).abandon()


def _client_says_nothing(frontend: Frontend, to: Endpoints) -> None:
    frontend.connect().close()


ENDS: Final[tuple[Callable[[Frontend, Endpoints], None], ...]] = (
    _client_closes,
    _client_aborts,
    _endpoint_closes,
    _endpoint_resets,
    _client_goes_in_a_flood,
    _both_close,
    _dial_is_refused,
    _client_goes_during_the_dial,
    _client_goes_as_the_dial_succeeds,
    _client_says_nothing,
)


@pytest.mark.parametrize(
    ("frontend", "count"),
    [
        ("uds", 1000),
        ("tcp-mtls", 200),
        pytest.param("uds", 5000, marks=pytest.mark.soak),
        pytest.param("tcp-mtls", 500, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_nothing_is_left_of_hundreds_of_tunnels(start_pair: StartPair, mode: str, frontend: str, count: int) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, mode, frontend))
    with _endpoints() as to:
        # What is made once and kept (resolver, pools) exists from here on.
        _run(pair, to, len(ENDS) * 2)
        _wait_until_empty(pair)
        before = _settled_counts(pair)
        _run(pair, to, count)
        _wait_until_empty(pair)
        assert _settled_counts(pair) == before


def test_nothing_is_left_of_tunnels_whose_agent_or_server_was_killed(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"))
    with _endpoints() as to:
        # Settled: the connection over which readiness was asked may still be open for an instant.
        server_files = _settled_counts(pair)[0]
        for _ in range(3):
            tunnels = [pair.frontend().open(to.echo) for _ in range(20)]
            pair.agent.kill()
            for tunnel in tunnels:
                assert receive_to_end(tunnel) == b""
                tunnel.close()
            pair.start_agent()
        _wait_until_empty(pair)
        wait_until(lambda: pair.server.open_files() == server_files, "the server's files are as before")
        agent_files = _settled_counts(pair)[1]
        for _ in range(3):
            tunnels = [pair.frontend().open(to.echo) for _ in range(20)]
            pair.server.kill()
            for tunnel in tunnels:
                tunnel.abort()
            pair.start_server()
            pair.wait_ready()
        _wait_until_empty(pair)
        wait_until(lambda: pair.agent.open_files() == agent_files, "the agent's files are as before")


def _run(pair: TunnelPair, to: Endpoints, count: int) -> None:
    """Run the ends in turn, a few at a time, so that they also meet each other."""
    frontend = pair.frontend()
    turns = itertools.islice(itertools.cycle(ENDS), count)
    guard = threading.Lock()
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            with guard:
                end = next(turns, None)
            if end is None:
                return
            try:
                end(frontend, to)
            except BaseException as error:
                failures.append(error)

    workers = [threading.Thread(target=work, name="client") for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    if failures:
        raise failures[0]


def _counts(pair: TunnelPair) -> list[int]:
    """Return open files and threads of server and agent."""
    daemons = (pair.server, pair.agent)
    return [*(daemon.open_files() for daemon in daemons), *(daemon.threads() for daemon in daemons)]


def _settled_counts(pair: TunnelPair) -> list[int]:
    """Return the counts once they stand still: a socket may outlive its tunnel until its last bytes are taken."""
    seen = [_counts(pair)]

    def stands_still() -> bool:
        seen.append(_counts(pair))
        return len(seen) > SETTLED_LOOKS and all(counts == seen[-1] for counts in seen[-SETTLED_LOOKS:])

    wait_until(stands_still, "the counts of files and threads stand still", 60)
    return seen[-1]


def _wait_until_empty(pair: TunnelPair) -> None:
    for gauge in (*SERVER_GAUGES, PROXY_STREAMS):
        wait_until(lambda name=gauge: pair.server_metric(name) == 0, f"{gauge} is 0", 30)  # type: ignore[misc]
    wait_until(lambda: pair.agent_metric("open_endpoint_connections") == 0, "no endpoint is connected", 30)
