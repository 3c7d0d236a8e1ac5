"""What server and agent tell the service manager, and the socket for clients that it passes them."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.fixture_types import Logged
from tests.support.in_process import Stage, echo
from tests.support.notify_socket import NotifySocket, abstract_name, notify_socket, with_variables
from tests.support.socket_pairs import kept
from tests.support.tunnel_client import assert_echoes, close_leftovers
from tests.support.tunnel_pair import Shape, TunnelPair, metric, wait_until
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.fault import StartupError
from umbilical.tunnel.service_manager import (
    ServiceManager,
    notification_address,
    passed_sockets,
    take,
    watchdog_seconds,
)
from umbilical.tunnel.settings import ListenAddress, TcpFrontend, TlsFiles, UnixFrontend

US: Final = 4711
"""A process id."""
LAUNCHER: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="clients")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Passes a socket as systemd does: as file 3 of the process that then becomes the server."""


@pytest.mark.parametrize(
    ("text", "address"),
    [(None, ""), ("", ""), ("/run/notify", "/run/notify"), ("@a/b", b"\0a/b")],
)
def test_the_address_for_notifications_is_a_path_or_an_abstract_name(text: str | None, address: str | bytes) -> None:
    assert notification_address(text) == address


@pytest.mark.parametrize("text", ["/", "@", "run/notify", "vsock:2:1234", " /run/x", "/" + "x" * 107])
def test_another_address_for_notifications_is_not_valid(text: str) -> None:
    with pytest.raises(ValueError, match="NOTIFY_SOCKET="):
        notification_address(text)


@pytest.mark.parametrize(
    ("text", "owner", "seconds"),
    [
        (None, None, 0.0),
        (None, "x", 0.0),
        ("30000000", None, 30.0),
        ("500000", str(US), 0.5),
        ("500000", str(US + 1), 0.0),
        ("1", None, 1e-6),
    ],
)
def test_signs_of_life_are_expected_of_the_process_that_is_named(
    text: str | None, owner: str | None, seconds: float
) -> None:
    assert watchdog_seconds(text, owner, US) == seconds


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("", None),
        ("0", None),
        ("-1", None),
        ("1.5", None),
        ("1s", None),
        ("9" * 19, None),
        ("\u0663", None),
        ("1", "x"),
    ],
)
def test_another_time_between_signs_of_life_is_not_valid(text: str, owner: str | None) -> None:
    with pytest.raises(ValueError, match="WATCHDOG_"):
        watchdog_seconds(text, owner, US)


@pytest.mark.parametrize(
    ("count", "owner"), [(None, None), (None, str(US)), ("1", None), ("1", str(US + 1)), ("x", "1"), ("0", str(US))]
)
def test_no_socket_is_taken_that_was_not_passed_to_this_process(count: str | None, owner: str | None) -> None:
    assert passed_sockets(count, owner, US) == ()


@pytest.mark.parametrize(
    ("count", "owner", "why"),
    [
        ("x", str(US), "LISTEN_FDS='x' is not a number"),
        ("-1", str(US), "LISTEN_FDS='-1' is not a number"),
        ("", str(US), "LISTEN_FDS='' is not a number"),
        ("9" * 30, str(US), "is not a number"),
        ("1", "x", "LISTEN_PID='x' is not a number"),
        ("1", str(US), "is not an open socket: Bad file descriptor"),
    ],
)
def test_a_bad_value_for_passed_sockets_keeps_the_process_from_starting(count: str, owner: str, why: str) -> None:
    closed = 999_999
    with pytest.raises(StartupError, match=why) as caught:
        passed_sockets(count, owner, US, first=closed)
    assert caught.value.code == "UMB025"


def test_a_file_that_is_no_socket_is_not_taken() -> None:
    with open(os.devnull) as file, pytest.raises(StartupError, match="is not an open socket"):
        passed_sockets("1", str(US), US, first=file.fileno())


def test_all_variables_are_taken_out_of_the_environment_and_bad_ones_are_a_warning(caplog: Logged) -> None:
    bad = {"NOTIFY_SOCKET": "nonsense", "WATCHDOG_USEC": "x", "WATCHDOG_PID": "y", "LISTEN_FDNAMES": ""}
    environment = {"PATH": "/bin", **bad, "LISTEN_FDS": "x", "LISTEN_PID": str(US + 1)}
    with caplog.at_level(logging.WARNING):
        take(environment, US)
    assert environment == {"PATH": "/bin"}
    (warning,) = [record.message for record in caplog.records]
    why = "NOTIFY_SOCKET='nonsense' is neither a path nor @ and an abstract name"
    assert warning == f"UMB431 the service manager cannot be told: {why}"


def listening(path: Path) -> socket.socket:
    sock = kept(socket.socket(socket.AF_UNIX))
    sock.bind(str(path))
    sock.listen()
    return sock


TCP: Final = TcpFrontend(ListenAddress("127.0.0.1", 0), TlsFiles())


def test_the_passed_socket_is_used_if_it_is_that_of_the_clients(tmp_path: Path) -> None:
    sock = listening(tmp_path / "s")
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / "s", tmp_path / "link" / "s"):
        assert ServiceManager(passed=(sock,)).clients_socket(UnixFrontend(path)) is sock
    assert ServiceManager().clients_socket(UnixFrontend(tmp_path / "s")) is None


def test_any_other_passed_socket_keeps_the_server_from_starting(tmp_path: Path) -> None:
    ours = UnixFrontend(tmp_path / "s")
    sock, other = listening(tmp_path / "s"), listening(tmp_path / "other")
    deaf, datagrams = kept(socket.socket(socket.AF_UNIX)), kept(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    tcp = kept(socket.create_server(("127.0.0.1", 0)))
    for passed, frontend, why in (
        ((other,), ours, f"it listens on '{tmp_path}/other', and clients are expected on '{tmp_path}/s'"),
        ((sock, other), ours, "2 sockets were passed"),
        ((deaf,), ours, "not a listening Unix stream socket"),
        ((datagrams,), ours, "not a listening Unix stream socket"),
        ((tcp,), ours, "not a listening Unix stream socket"),
        ((sock,), TCP, "clients connect over TCP"),
    ):
        with pytest.raises(StartupError, match=why) as caught:
            ServiceManager(passed=passed).clients_socket(frontend)
        assert caught.value.code == "UMB025"


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[NotifySocket]:
    with notify_socket(tmp_path / "notify") as ear:
        yield ear


async def test_a_loop_that_hangs_sends_no_sign_of_life(ear: NotifySocket) -> None:
    async with AsyncExitStack() as stack:
        ServiceManager(ear.address, watchdog_seconds=0.1).ready(stack, lambda: "")
        await asyncio.to_thread(ear.until, "WATCHDOG=1")
        ear.drain()
        time.sleep(1.0)  # ten times the time that is allowed
        assert ear.drain() == []
        await asyncio.to_thread(ear.until, "WATCHDOG=1")


async def test_the_status_is_sent_when_it_has_changed(ear: NotifySocket) -> None:
    status = "one"
    async with AsyncExitStack() as stack:
        ServiceManager(ear.address, watchdog_seconds=0.1).ready(stack, lambda: status)
        assert (await asyncio.to_thread(ear.next)).lines == ("READY=1", "STATUS=one")
        assert (await asyncio.to_thread(ear.next)).lines == ("WATCHDOG=1",)
        status = "two"
        await asyncio.to_thread(ear.until, "STATUS=two")


async def test_a_notification_that_the_manager_has_no_room_for_is_sent_later_and_in_order(ear: NotifySocket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                stranger.sendto(b"X=1", ear.address)
    async with AsyncExitStack() as stack:
        manager = ServiceManager(ear.address, watchdog_seconds=0.01)
        manager.ready(stack, lambda: "")
        manager.stopping()
        await asyncio.sleep(0.1)  # ten signs of life are due: none may be kept
        await asyncio.to_thread(ear.until, "WATCHDOG=1")
    states = [notification.lines[0] for notification in ear.heard if notification.lines != ("X=1",)]
    assert states[:3] == ["READY=1", "STOPPING=1", "WATCHDOG=1"]


async def test_a_manager_that_is_gone_is_one_warning(tmp_path: Path, caplog: Logged) -> None:
    manager = ServiceManager(str(tmp_path / "nobody"))
    async with AsyncExitStack() as stack:
        manager.ready(stack, lambda: "")
        manager.stopping()
    assert [record.message for record in caplog.records if "UMB431" in record.message] == [
        "UMB431 the service manager cannot be told: it takes no notification: No such file or directory"
    ]


async def test_a_process_without_a_manager_tells_nobody() -> None:
    async with AsyncExitStack() as stack:
        ServiceManager().ready(stack, lambda: pytest.fail("nobody wants the status"))
        await asyncio.sleep(0)


StartPair = Callable[..., TunnelPair]


@pytest.fixture
def pair(tunnel_pki: TunnelPki, tmp_path: Path) -> Iterator[StartPair]:
    """A server and an agent that do not run yet, with the beginning of their commands."""
    with ExitStack() as stack:

        def make(prefix: list[str], workers: int = 1, pki: TunnelPki = tunnel_pki, **flags: Any) -> TunnelPair:
            pair = TunnelPair(Shape(workers=workers), pki, tmp_path, **flags)
            for daemon in (pair.server, pair.agent):
                daemon.command = [*prefix, *daemon.command]
            stack.callback(lambda: print(pair.logs()))
            stack.callback(pair.stop)
            return pair

        yield make
    close_leftovers()


WORKERS: Final = pytest.mark.parametrize("workers", [1, 2])


@WORKERS
def test_a_server_is_ready_once_every_port_is_open_and_tells_when_it_stops(
    pair: StartPair, ear: NotifySocket, workers: int
) -> None:
    tunnel = pair(with_variables({"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "200000"}), workers)
    tunnel.server.start()
    first = ear.next()
    assert first.lines[0] == "READY=1"
    tunnel.frontend().connect()
    for port in (tunnel.ports.agent, tunnel.ports.server_health, tunnel.ports.server_admin):
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    for _ in range(3):
        ear.until("WATCHDOG=1")
    tunnel.server.signal(signal.SIGTERM)
    ear.until("STOPPING=1")
    assert tunnel.server.wait() == 0
    ear.drain()
    assert {notification.sender for notification in ear.heard} == {tunnel.server.pid}, "the main process speaks for all"


@WORKERS
def test_a_server_that_cannot_open_a_port_is_never_ready(pair: StartPair, ear: NotifySocket, workers: int) -> None:
    tunnel = pair(with_variables({"NOTIFY_SOCKET": ear.address}), workers)
    with socket.create_server(("127.0.0.1", tunnel.ports.agent)):
        tunnel.server.start()
        assert tunnel.server.wait() == 1
    assert ear.drain() == []


def test_workers_do_not_have_the_variables(pair: StartPair, ear: NotifySocket) -> None:
    variables = {"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "60000000", "KEPT": "yes"}
    tunnel = pair(with_variables(variables), workers=2)
    tunnel.server.start()
    ear.until("READY=1")
    for worker in tunnel.worker_pids():
        names = {line.partition(b"=")[0] for line in Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")}
        assert {name for name in names if name.startswith((b"NOTIFY", b"WATCHDOG", b"LISTEN"))} == set()
        assert b"KEPT" in names


@WORKERS
def test_a_server_that_is_stopped_sends_no_sign_of_life(pair: StartPair, ear: NotifySocket, workers: int) -> None:
    tunnel = pair(with_variables({"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "100000"}), workers)
    tunnel.server.start()
    ear.until("WATCHDOG=1")
    tunnel.server.signal(signal.SIGSTOP)
    wait_until(lambda: _state(tunnel.server.pid) == "T", "it is stopped")
    ear.drain()
    time.sleep(1.0)  # ten times the time that is allowed
    assert ear.drain() == []
    tunnel.server.signal(signal.SIGCONT)
    ear.until("WATCHDOG=1")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_watchdog_of_another_process_gets_no_sign_of_life(pair: StartPair, ear: NotifySocket) -> None:
    variables = {"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "50000", "WATCHDOG_PID": "1"}
    tunnel = pair(with_variables(variables))
    tunnel.server.start()
    ear.until("READY=1")
    time.sleep(1.0)
    tunnel.server.signal(signal.SIGTERM)
    assert tunnel.server.wait() == 0
    ear.drain()
    assert [notification.lines[0] for notification in ear.heard] == ["READY=1", "STOPPING=1"]


def test_an_agent_is_ready_without_a_server_and_tells_how_many_it_has(pair: StartPair) -> None:
    with notify_socket(abstract_name()) as ear:
        tunnel = pair(with_variables({"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "200000"}))
        tunnel.agent.start()
        assert ear.next().lines == ("READY=1", "STATUS=servers connected: 0 of 1")
        assert tunnel.agent_health("/healthz") == (200, "ok")
        tunnel.server.command = tunnel.server.command[3:]  # the agent's manager is not the server's
        tunnel.start_server()
        ear.until("STATUS=servers connected: 1 of 1")
        ear.until("WATCHDOG=1")
        tunnel.agent.signal(signal.SIGTERM)
        ear.until("STOPPING=1")
        ear.until("WATCHDOG=1")
        tunnel.agent.signal(signal.SIGTERM)
        assert tunnel.agent.wait() == 0


@WORKERS
def test_a_hangup_reloads_certificates_between_two_notifications(
    pair: StartPair, ear: NotifySocket, tmp_path: Path, workers: int
) -> None:
    pki = make_tunnel_pki(tmp_path)
    tunnel = pair(with_variables({"NOTIFY_SOCKET": ear.address}), workers, pki)
    tunnel.server.start()
    ear.until("READY=1")
    pki.authority.serving(pki.server.certificate.stem)
    tunnel.server.signal(signal.SIGHUP)
    reloading = ear.until("RELOADING=1")
    assert int(reloading.lines[1].removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    ear.until("READY=1")
    reloads = "umbilical_certificate_reloads_total"
    wait_until(lambda: metric(tunnel.ports.server_admin, reloads) == workers, "all have reloaded")
    assert len(tunnel.worker_pids()) == (workers if workers > 1 else 0)


def pass_socket(tunnel: TunnelPair, sock: socket.socket) -> None:
    """Have the server start with this socket."""
    tunnel.server.passed = (sock.fileno(),)
    tunnel.server.command = [sys.executable, "-c", LAUNCHER, str(sock.fileno()), *tunnel.server.command]


@WORKERS
def test_a_passed_socket_serves_clients_and_outlives_the_server(
    pair: StartPair, stage: Stage, tmp_path: Path, workers: int
) -> None:
    tunnel = pair([], workers, server_flags=["--graceful-shutdown-timeout=1h"])
    sock = listening(tunnel.socket_path)
    pass_socket(tunnel, sock)
    tunnel.start()
    endpoint = stage.endpoint().serve(echo)
    served = tunnel.frontend().open(endpoint.address)
    assert_echoes(served)
    tunnel.server.signal(signal.SIGTERM)
    wait_until(lambda: tunnel.server_health("/readyz")[0] == 500, "it accepts no more")
    waiting = tunnel.frontend().connect()
    assert_echoes(served)
    served.close()
    assert tunnel.server.wait() == 0
    assert tunnel.socket_path.is_socket(), "it belongs to the service manager"
    tunnel.server.start()
    tunnel.wait_ready()
    waiting.sendall(f"CONNECT {endpoint.address} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert waiting.recv(4096).startswith(b"HTTP/1.1 200"), "the next server takes who came in between"


def test_a_passed_socket_at_another_path_keeps_the_server_from_starting(pair: StartPair, tmp_path: Path) -> None:
    tunnel = pair([])
    pass_socket(tunnel, listening(tmp_path / "elsewhere.sock"))
    tunnel.server.start()
    assert tunnel.server.wait() == 1
    why = f"it listens on '{tmp_path}/elsewhere.sock', and clients are expected on '{tunnel.socket_path}'"
    assert f"Error: cannot use the socket that the service manager passed: {why}" in tunnel.server.log.read_text()


@pytest.mark.real("systemd-socket-activate")
def test_the_server_takes_the_socket_of_systemds_own_activation(pair: StartPair, stage: Stage) -> None:
    tunnel = pair([])
    activate = ["systemd-socket-activate", f"--listen={tunnel.socket_path}", "--fdname=clients"]
    tunnel.server.command = [*activate, *tunnel.server.command]
    tunnel.server.start()
    wait_until(tunnel.socket_path.is_socket, "systemd-socket-activate listens")
    first = tunnel.frontend().connect()  # the server starts when the first client comes
    tunnel.start_agent()
    endpoint = stage.endpoint().serve(echo)
    first.sendall(f"CONNECT {endpoint.address} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert first.recv(4096).startswith(b"HTTP/1.1 200")
    assert_echoes(tunnel.frontend().open(endpoint.address))
