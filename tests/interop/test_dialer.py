"""The dialer through real servers and agents, upstream's and ours: bytes, ends, failover, and every reason for real."""

import asyncio
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.interop.conftest import StartPair, print_logs
from tests.interop.endpoints import echo, endpoint, pattern, refused_address, transfer
from tests.support.coroutines import play
from tests.support.dialer_testbed import dialer_for, echoed, end, failure_at, open_at, settings_for
from tests.support.live_certificates import LiveFiles
from tests.support.no_route import no_route
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.dialer.blocking import BlockingDialer
from umbilical.dialer.dialer import Dialer
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer
from umbilical.dialer.trace import Trace
from umbilical.tunnel.settings import TlsFiles

pytestmark = pytest.mark.real("proxy-server", "proxy-agent", "ip")

EARLY_DIALS: Final = 250
"""In each of four cells of ours."""
AT_ONCE: Final = 25
GREETING: Final = b"SSH-2.0-endpoint\r\n"
"""TEST-NET-3; the namespace's own table says that there is no way."""
SILENT: Final = "198.18.7.7:443"
"""Behind the namespace's black hole: the agent gives up after its five seconds."""

SHAPES: Final = [
    Shape(side, side, mode, frontend)
    for side, mode, frontend in itertools.product(("ours", "upstream"), ("http-connect", "grpc"), ("uds", "tcp-mtls"))
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
    """Give the cell's pair, in health: upstream's own faults may have killed it in the case before."""
    running_pair.revive()
    yield running_pair
    print_logs(running_pair)


def greet(sock: socket.socket) -> None:
    sock.sendall(GREETING)
    while sock.recv(1 << 16):
        pass


def test_what_an_endpoint_says_first_is_never_lost(pair: TunnelPair) -> None:
    """Upstream's server may send it before its own 200 in mode http-connect, which is then no reply at all."""
    races = pair.shape.server == "upstream" and pair.shape.mode == "http-connect"
    dials = EARLY_DIALS if pair.shape.is_ours_alone else EARLY_DIALS // 5

    async def one(dialer: Dialer, address: str) -> DialReason | None:
        try:
            reader, writer = await open_at(dialer, address)
        except DialFailed as failure:
            return failure.reason
        assert await reader.readexactly(len(GREETING)) == GREETING
        await end(writer)
        return None

    async def script(address: str) -> set[DialReason | None]:
        ends: set[DialReason | None] = set()
        async with dialer_for(pair.pki, pair.frontend()) as dialer:
            for _ in range(dials // AT_ONCE):
                ends.update(await asyncio.gather(*(one(dialer, address) for _ in range(AT_ONCE))))
        return ends

    with endpoint(greet) as address:
        ends = play(script(address))
    assert ends <= ({None, DialReason.PROTOCOL} if races else {None})


def test_sessions_are_resumed_and_hops_are_told(pair: TunnelPair) -> None:
    async def script(address: str) -> None:
        details = []
        host, _, port = address.rpartition(":")
        async with dialer_for(pair.pki, pair.frontend()) as dialer:
            for _ in range(3):
                trace = Trace()
                streams = await dialer.open(host, int(port), trace)
                assert await echoed(streams, b"ping") == b"ping"
                await end(streams[1])
                assert trace.hops[0].name == "connect"
                assert trace.hops[-1].name == "dial"
                details += [hop.detail for hop in trace.hops if hop.name == "tls"]
        if pair.shape.frontend == "tcp-mtls":
            # Clients go to the workers in turn, and each has keys of its own for tickets.
            later = "full handshake" if pair.shape.has_workers else "resumed"
            assert details == ["TLSv1.3, full handshake", f"TLSv1.3, {later}", f"TLSv1.3, {later}"]

    with endpoint(echo) as address:
        play(script(address))


def test_the_endpoint_s_failures_have_their_reasons(pair: TunnelPair) -> None:
    with no_route() as address:
        _check_reasons(pair, f"{address}:443")


def _check_reasons(pair: TunnelPair, unreachable: str) -> None:
    refused = refused_address()
    expected = {
        refused: DialReason.REFUSED,
        unreachable: DialReason.UNREACHABLE,
        "nobody.invalid:443": DialReason.NAME,
    }
    if (pair.shape.mode, pair.shape.frontend) == ("http-connect", "uds"):  # elsewhere five seconds show no more
        expected[SILENT] = DialReason.TIMEOUT

    async def script() -> dict[str, DialFailed]:
        async with dialer_for(pair.pki, pair.frontend()) as dialer:
            failures = await asyncio.gather(*(failure_at(dialer, address) for address in expected))
        return dict(zip(expected, failures, strict=True))

    failures = play(script())
    assert {address: failure.reason for address, failure in failures.items()} == expected
    assert all(failure.hop == address for address, failure in failures.items())


@pytest.fixture(params=["ours", "upstream"])
def implementation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
def test_a_server_without_agents_says_so(start_pair: StartPair, implementation: str, mode: str) -> None:
    pair = start_pair(Shape(implementation, implementation, mode, "uds"), agents=False)
    failure = play(failure_at(dialer_for(pair.pki, pair.frontend()), "127.0.0.1:1"))
    assert failure.reason is DialReason.NO_AGENT
    assert failure.hop == f"unix:{pair.socket_path}"


def _dialer(pair: TunnelPair, files: TlsFiles) -> Dialer:
    server = TcpServer("127.0.0.1", pair.ports.frontend)
    return Dialer(DialerSettings((server,), files, Protocol(pair.shape.mode)))


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
async def test_a_certificate_of_another_ca_is_refused_on_either_side(
    start_pair: StartPair, implementation: str, mode: str, tmp_path: Path
) -> None:
    pair = start_pair(Shape(implementation, implementation, mode, "tcp-mtls"), agents=False)
    (tmp_path / "strange").mkdir()
    stranger = FolderAuthority(tmp_path / "strange")
    ours, theirs = pair.pki.client, stranger.client("nobody")
    distrusting = TlsFiles(ours.certificate, ours.key, stranger.certificate_file)
    distrusted = TlsFiles(theirs.certificate, theirs.key, pair.pki.authority.certificate_file)
    nameless = TlsFiles(authority=pair.pki.authority.certificate_file)

    for files in (distrusting, distrusted, nameless):
        dialer = _dialer(pair, files)
        failure = await failure_at(dialer, "127.0.0.1:1")
        await dialer.close()
        assert failure.reason is DialReason.TLS, failure.brief
        assert failure.hop == f"127.0.0.1:{pair.ports.frontend}"


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
async def test_a_server_that_is_killed_while_it_dials_is_gone_and_named(
    start_pair: StartPair, implementation: str, mode: str
) -> None:
    pair = start_pair(Shape(implementation, implementation, mode, "tcp-mtls"))

    async with dialer_for(pair.pki, pair.frontend()) as dialer, asyncio.TaskGroup() as group:
        dial = group.create_task(failure_at(dialer, SILENT))
        await asyncio.to_thread(
            wait_until, lambda: pair.server_metric("pending_backend_dials") == 1, "the dial is pending"
        )
        pair.server.kill()
        failure = await dial
        assert failure.reason is DialReason.SERVER, failure.brief
        assert failure.hop == f"127.0.0.1:{pair.ports.frontend}"
        assert (await failure_at(dialer, SILENT)).text == "connection refused"


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
def test_with_one_of_three_servers_dead_every_dial_succeeds(
    start_pair: StartPair, implementation: str, mode: str
) -> None:
    pairs = [start_pair(Shape(implementation, implementation, mode, "tcp-mtls")) for _ in range(3)]

    async def dial(dialer: Dialer, address: str) -> None:
        streams = await open_at(dialer, address)
        assert await echoed(streams, b"ping") == b"ping"
        await end(streams[1])

    async def script(address: str) -> None:
        async with dialer_for(pairs[0].pki, *(pair.frontend() for pair in pairs)) as dialer:
            await dial(dialer, address)
            pairs[0].server.kill()
            for _ in range(4):
                await asyncio.gather(*(dial(dialer, address) for _ in range(10)))
            pairs[1].agent.kill()
            await asyncio.to_thread(
                wait_until, lambda: pairs[1].server_health("/readyz")[0] != 200, "the second has no agent"
            )
            for _ in range(4):
                await asyncio.gather(*(dial(dialer, address) for _ in range(10)))

    with endpoint(echo) as address:
        play(script(address))


def test_certificates_are_rotated_under_use_and_no_dial_fails(
    start_pair: StartPair, implementation: str, tmp_path: Path
) -> None:
    pair = start_pair(Shape(implementation, implementation, "http-connect", "tcp-mtls"))
    live = LiveFiles(tmp_path / "live")
    live.install(pair.pki.client, pair.pki.authority)

    async def keep_dialling(dialer: Dialer, address: str, stop: asyncio.Event) -> int:
        count = 0
        while not stop.is_set():
            streams = await open_at(dialer, address)
            assert await echoed(streams, b"ping") == b"ping"
            await end(streams[1])
            count += 1
        return count

    async def script(address: str) -> None:
        stop = asyncio.Event()
        async with _dialer(pair, live.files) as dialer, asyncio.TaskGroup() as group:
            watched = dialer._watched
            assert watched is not None
            work = [group.create_task(keep_dialling(dialer, address, stop)) for _ in range(3)]
            for number in range(3):
                before = watched._loaded
                live.install_pair(pair.pki.authority.client(f"client-{number}"))
                async with asyncio.timeout(60):
                    while watched._loaded is before:
                        await asyncio.sleep(0.01)
            stop.set()
            counts = await asyncio.gather(*work)
        assert all(counts)

    with endpoint(echo) as address:
        play(script(address))


def test_a_script_that_is_not_asyncio_gets_a_socket(pair: TunnelPair) -> None:
    with endpoint(transfer) as address, BlockingDialer(settings_for(pair.pki, pair.frontend())) as dialer:
        host, _, port = address.rpartition(":")
        with dialer.open(host, int(port), 60.0) as sock, sock.makefile("rb") as answers:
            sock.sendall(b"down 1000000\n")
            assert answers.read(1_000_000) == pattern(1_000_000)
