"""The interop matrix: {ours, upstream} server x {ours, upstream} agent x {grpc, http-connect} x {Unix socket, mTLS}.

Upstream's two ends meet in two of the four forms only: they show that what is expected is upstream's own way. Its
oldest supported version meets ours in four forms, its server in gRPC mode only: over HTTP CONNECT it answers 200 before
it dials. `make compatibility` runs the versions between. One running pair per cell; the cases that kill something bring
it back before the next case.
"""

import hashlib
import itertools
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
from tests.interop.conftest import print_logs
from tests.interop.endpoints import echo, endpoint, http_endpoint, pattern, refused_address, transfer
from tests.support.tunnel_client import DialRefused, receive_exactly, receive_to_end
from tests.support.tunnel_pair import Shape, TunnelPair, oldest, wait_until
from tests.support.tunnel_pki import TunnelPki

import peers

pytestmark = pytest.mark.real("proxy-server", "proxy-agent", "proxy-test-client")

MIB: Final = 1024 * 1024
_ALL: Final = [
    Shape(server, agent, mode, frontend)
    for server, agent in itertools.product(("ours", "upstream"), repeat=2)
    for mode in ("grpc", "http-connect")
    for frontend in ("uds", "tcp-mtls")
    if (server, agent) != ("upstream", "upstream")
    or (mode, frontend) in (("grpc", "uds"), ("http-connect", "tcp-mtls"))
]
# The other four are run with UMBILICAL_TEST_WORKERS=2, as everything else here.
_WITH_WORKERS: Final = [
    Shape("ours", "ours", "grpc", "tcp-mtls", workers=2),
    Shape("ours", "ours", "http-connect", "uds", workers=2),
    Shape("ours", "upstream", "grpc", "uds", workers=2),
    Shape("ours", "upstream", "http-connect", "tcp-mtls", workers=2),
]
_WITH_OLDEST: Final = [
    Shape("ours", "oldest", "grpc", "tcp-mtls"),
    Shape("ours", "oldest", "http-connect", "uds"),
    Shape("oldest", "ours", "grpc", "uds"),
    Shape("oldest", "ours", "grpc", "tcp-mtls"),
]
_OLDEST_PROGRAMS: Final = pytest.mark.real(*map(oldest, ("proxy-server", "proxy-agent")))
SHAPES: Final = [
    *dict.fromkeys([*_ALL, *_WITH_WORKERS]),
    *(pytest.param(shape, marks=_OLDEST_PROGRAMS) for shape in _WITH_OLDEST),
]


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def running_pair(
    request: pytest.FixtureRequest, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TunnelPair]:
    running = TunnelPair(request.param, pki, tmp_path_factory.mktemp("pair"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def pair(running_pair: TunnelPair) -> Iterator[TunnelPair]:
    """Give the cell's pair, in health. What upstream's faults killed in the case before is started again."""
    running_pair.revive()
    yield running_pair
    print_logs(running_pair)
    if running_pair.shape.server == "ours":
        assert running_pair.server.is_running()
    if running_pair.shape.agent == "ours":
        assert running_pair.agent.is_running()


def test_upstreams_client_gets_an_answer(pair: TunnelPair) -> None:
    with http_endpoint() as address:
        done = _test_client(pair, address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello" in done.stdout + done.stderr


def test_upstreams_client_is_told_of_a_refused_target(pair: TunnelPair) -> None:
    done = _test_client(pair, refused_address())
    assert done.returncode == 1
    # Over http-connect the client prints the status line only.
    expected = "connection refused" if pair.shape.mode == "grpc" else "502 Bad Gateway"
    assert expected in done.stdout + done.stderr


def test_a_refused_target_is_told_in_gos_words(pair: TunnelPair) -> None:
    address = refused_address()
    with pytest.raises(DialRefused) as refusal:
        pair.frontend().open(address)
    assert refusal.value.text == f"dial tcp {address}: connect: connection refused"
    if pair.shape.mode == "http-connect":
        assert refusal.value.status_line == "HTTP/1.1 502 Bad Gateway"


def test_an_unknown_host_is_told_in_gos_words(pair: TunnelPair) -> None:
    with pytest.raises(DialRefused) as refusal:
        pair.frontend().open("webhook.invalid:443")
    assert refusal.value.text == "dial tcp: lookup webhook.invalid on 127.0.0.1:53: no such host"
    if pair.shape.mode == "http-connect":
        assert refusal.value.status_line == "HTTP/1.1 502 Bad Gateway"


def test_twenty_mebibytes_arrive_whole_in_both_directions(pair: TunnelPair) -> None:
    payload = pattern(20 * MIB)
    expected = hashlib.sha256(payload).hexdigest()
    with endpoint(transfer) as address:
        tunnel = pair.frontend().open(address)
        tunnel.send(b"up %d\n" % len(payload))
        tunnel.send(payload)
        assert receive_exactly(tunnel, 64).decode() == expected
        tunnel.send(b"down %d\n" % len(payload))
        received = receive_exactly(tunnel, len(payload))
        tunnel.close()
    assert hashlib.sha256(received).hexdigest() == expected


def test_a_killed_agent_ends_its_tunnels_and_a_new_one_serves(pair: TunnelPair) -> None:
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        tunnel.send(b"before")
        assert receive_exactly(tunnel, 6) == b"before"
        pair.agent.kill()
        assert receive_to_end(tunnel) == b""
        tunnel.close()
        wait_until(lambda: _refusal(pair, address) == _no_agent(pair), "dials are refused for want of an agent")
        pair.start_agent()
        _core(pair, address)


def test_a_restarted_server_is_found_again_by_the_agent(pair: TunnelPair) -> None:
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        tunnel.send(b"before")
        assert receive_exactly(tunnel, 6) == b"before"
        pair.server.kill()
        assert receive_to_end(tunnel) == b""
        tunnel.close()
        pair.start_server()
        pair.wait_ready()
        _core(pair, address)


def _core(pair: TunnelPair, address: str) -> None:
    tunnel = pair.frontend().open(address)
    tunnel.send(b"after")
    assert receive_exactly(tunnel, 5) == b"after"
    tunnel.close()


def _refusal(pair: TunnelPair, address: str) -> str:
    try:
        pair.frontend().open(address).abort()
    except DialRefused as refusal:
        return refusal.text
    return ""


def _no_agent(pair: TunnelPair) -> str:
    if pair.shape.mode == "grpc":
        return "No agent available"
    return "currently no tunnels available: No agent available"


def _test_client(pair: TunnelPair, address: str) -> subprocess.CompletedProcess[str]:
    """Run upstream's client, again where it closed its own socket under its feet (over TLS, about once in 200)."""
    for _ in range(3):
        done = _run_test_client(pair, address)
        if "use of closed network connection" not in done.stderr:
            break
    return done


def _run_test_client(pair: TunnelPair, address: str) -> subprocess.CompletedProcess[str]:
    client = peers.binary("proxy-test-client")
    assert client is not None
    host, port = address.split(":")
    command = [str(client), f"--mode={pair.shape.mode}", f"--request-host={host}", f"--request-port={port}"]
    command += ["--request-path=success", *_frontend_flags(pair)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _frontend_flags(pair: TunnelPair) -> list[str]:
    if pair.shape.frontend == "uds":
        return [f"--proxy-uds={pair.socket_path}", "--proxy-host=", "--proxy-port=0"]
    return [
        "--proxy-host=127.0.0.1",
        f"--proxy-port={pair.ports.frontend}",
        f"--ca-cert={pair.pki.authority.certificate_file}",
        f"--client-cert={pair.pki.client.certificate}",
        f"--client-key={pair.pki.client.key}",
    ]
