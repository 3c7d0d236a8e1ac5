"""From a server's name to a socket: every address, each with its own time."""

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.dialer_scene import PATIENCE_SECONDS, play
from tests.support.tunnel_pair import free_port

from umbilical.dialer import reach
from umbilical.dialer.settings import TcpServer, UnixServer


def reached(server: UnixServer | TcpServer, seconds: float = PATIENCE_SECONDS) -> socket.socket:
    return play(reach.reach(server, seconds))


@pytest.mark.parametrize(
    ("server", "name"),
    [
        (UnixServer(Path("/run/k.sock")), "unix:/run/k.sock"),
        (TcpServer("konnectivity-server", 8090), "konnectivity-server:8090"),
        (TcpServer("fd00::1", 8090), "[fd00::1]:8090"),
    ],
)
def test_a_server_has_a_name_for_people(server: UnixServer | TcpServer, name: str) -> None:
    assert reach.name_of(server) == name


def test_an_address_is_reached_without_asking_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        reached(TcpServer("127.0.0.1", listener.getsockname()[1])) as sock,
    ):
        assert sock.getblocking() is False
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_of_a_name_s_addresses_the_first_that_listens_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        _resolves(monkeypatch, [("127.0.0.2", port), ("127.0.0.3", port), ("127.0.0.1", port)])
        with reached(TcpServer("localhost", port)) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


def test_when_none_listens_the_last_one_s_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    _resolves(monkeypatch, [("127.0.0.2", port), ("127.0.0.3", port)])
    with pytest.raises(reach.Unreached, match=r"^127\.0\.0\.3: connection refused$"):
        reached(TcpServer("localhost", port))
    with pytest.raises(reach.Unreached, match=r"^connection refused$"):
        reached(TcpServer("127.0.0.1", port))


def _resolves(monkeypatch: pytest.MonkeyPatch, addresses: list[tuple[str, int]]) -> None:
    def resolve(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_name_that_is_unknown_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(reach.Unreached, match="cannot be resolved: Name or service not known"):
        reached(TcpServer("nowhere.invalid", 1))


def test_a_name_without_addresses_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolves(monkeypatch, [])
    with pytest.raises(reach.Unreached, match="no address"):
        reached(TcpServer("empty.invalid", 1))


async def _slow_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    await reach.reach(TcpServer("slow.invalid", 1), 0.01)


def test_a_resolver_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(reach.Unreached, match=r"not resolved within 0\.01 s"):
        play(_slow_lookup(monkeypatch))


def test_a_listener_whose_queue_is_full_is_not_waited_for() -> None:
    """The kernel drops what does not fit: the connect hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        with (
            socket.create_connection(address, timeout=PATIENCE_SECONDS),
            pytest.raises(reach.Unreached, match=r"no connection within 0\.2 s"),
        ):
            reached(TcpServer(*address), 0.2)


def test_a_unix_socket_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(reach.Unreached, match=r"^no such file or directory$"):
        reached(UnixServer(tmp_path / "none"))


def test_a_unix_socket_whose_queue_is_full_is_tried_until_there_is_room(tmp_path: Path) -> None:
    """Non-blocking, the kernel says EAGAIN at once, which asyncio would take for a connect under way."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        first = reached(UnixServer(path))

        async def second() -> None:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(reach.reach(UnixServer(path), PATIENCE_SECONDS))
                await asyncio.sleep(0.02)
                listener.accept()[0].close()
            waiting.result().close()

        with first:
            play(second())


def test_a_unix_socket_whose_queue_stays_full_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with reached(UnixServer(path)), pytest.raises(reach.Unreached, match="no connection within"):
            reached(UnixServer(path), 0.05)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError("told without a number"), "told without a number"),
        (OSError(), "OSError"),
    ],
)
def test_errors_are_told_in_the_kernel_s_words(error: OSError, words: str) -> None:
    assert reach.words_of(error) == words
