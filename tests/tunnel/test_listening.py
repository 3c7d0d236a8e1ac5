import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.data_plane import HandClock, open_files, settle, turn_until
from tests.support.file_limits import no_descriptors
from tests.support.fixture_types import Logged
from tests.support.socket_pairs import kept, reset

from umbilical.fault import StartupError
from umbilical.tunnel.descriptors import FileWatch
from umbilical.tunnel.listening import (
    MOST_ACCEPTS_PER_TURN,
    PAUSE_SECONDS,
    SocketListener,
    listen_tcp,
    listen_unix,
)
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.settings import ListenAddress, UnixFrontend
from umbilical.tunnel.unadmitted import ClientRule


class Door:
    """A listener on loopback and its accepted connections; the test may act at each."""

    def __init__(self, plane: Loop) -> None:
        self.came: list[socket.socket] = []
        self.then: Callable[[], object] = list
        self.sock = kept(listen_tcp(ListenAddress("127.0.0.1", 0), "tests"))
        self.files = FileWatch(plane)
        self.listener = SocketListener(plane, self.sock, self._accept, ClientRule(self.files, None))

    def _accept(self, sock: socket.socket) -> None:
        self.came.append(kept(sock))
        self.then()

    def knock(self) -> socket.socket:
        return kept(socket.create_connection(("127.0.0.1", self.listener.port()), timeout=10))


@pytest.fixture
def door(plane: Loop) -> Iterator[Door]:
    door = Door(plane)
    yield door
    door.listener.close()


def test_connections_are_handed_over_without_blocking(plane: Loop, door: Door) -> None:
    client = door.knock()
    turn_until(plane, lambda: door.came)
    (sock,) = door.came
    assert not sock.getblocking()
    assert not sock.get_inheritable()
    client.send(b"x")
    assert sock.getpeername() == client.getsockname()


def test_a_turn_takes_a_share_that_grows_with_the_crowd_and_comes_back_for_the_rest(plane: Loop, door: Door) -> None:
    crowd = [door.knock() for _ in range(2 * MOST_ACCEPTS_PER_TURN)]
    shares: list[int] = []
    while len(door.came) < len(crowd):
        before = len(door.came)
        plane.turn(1.0)
        shares.append(len(door.came) - before)
    assert shares[:5] == [1, 1, 2, 3, 4]
    assert max(shares) <= MOST_ACCEPTS_PER_TURN
    assert sum(shares) == len(crowd)


def test_a_closed_listener_hears_no_more_of_a_socket_that_another_process_keeps_open(plane: Loop, door: Door) -> None:
    held_elsewhere = kept(door.sock.dup())
    door.listener.close()
    kept(socket.create_connection(held_elsewhere.getsockname(), timeout=10))
    assert plane.turn(0.0) == []
    assert door.came == []


def test_a_closed_listener_accepts_nothing_and_frees_its_port(plane: Loop, door: Door) -> None:
    port = door.listener.port()
    door.listener.close()
    door.listener.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10)
    settle(plane)
    kept(listen_tcp(ListenAddress("127.0.0.1", port), "tests"))


def test_a_listener_may_be_closed_by_whom_it_accepted(plane: Loop, door: Door) -> None:
    door.then = door.listener.close
    for _ in range(3):
        door.knock()
    plane.turn(1.0)
    assert len(door.came) == 1


def test_a_client_that_left_before_it_was_accepted_does_no_harm(plane: Loop, door: Door) -> None:
    reset(door.knock())
    door.knock()
    turn_until(plane, lambda: len(door.came) == 2)


def test_a_handler_that_breaks_does_not_end_the_listening(plane: Loop, door: Door, caplog: Logged) -> None:
    def drop() -> None:
        raise RuntimeError("dropped it")

    door.then = drop
    door.knock()
    door.knock()
    turn_until(plane, lambda: len(door.came) == 2)
    assert "internal error while accepting a connection: RuntimeError('dropped it')" in caplog.text


def complaints(caplog: Logged) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def refusal(listen: Callable[..., socket.socket], *where: Any) -> StartupError:
    """What keeps it from listening there; no socket is left of it."""
    before = open_files()
    with pytest.raises(StartupError) as caught:
        listen(*where)
    assert open_files() == before
    return caught.value


def test_without_a_free_descriptor_the_listener_rests_and_then_serves_who_waited(
    plane: Loop, door: Door, caplog: Logged
) -> None:
    caplog.set_level(logging.INFO)
    door.knock()
    door.knock()
    with no_descriptors() as limit:
        turn_until(plane, lambda: door.files.refusals >= 3)
    assert door.came == []
    why = f"new clients wait: Too many open files; the limit of open files is {limit}"
    assert caplog.messages == [f"UMB420 open files run short: {why}"]
    turn_until(plane, lambda: len(door.came) == 2)
    turn_until(plane, lambda: len(caplog.messages) == 2)
    assert caplog.messages[1].startswith("open files suffice again after ")


def test_a_resting_listener_does_not_spin(plane: Loop, door: Door, clock: HandClock) -> None:
    door.knock()
    with no_descriptors():
        settle(plane, 50)
    assert door.files.refusals == 1
    clock.advance(PAUSE_SECONDS)
    turn_until(plane, lambda: door.came)


def test_a_listener_that_is_closed_while_it_rests_stays_closed(plane: Loop, door: Door) -> None:
    door.knock()
    with no_descriptors():
        plane.turn(1.0)
    door.listener.close()
    door.listener.on_timer()
    settle(plane)
    assert door.came == []


def test_an_empty_host_listens_on_both_families() -> None:
    sock = kept(listen_tcp(ListenAddress("", 0), "agents"))
    port = sock.getsockname()[1]
    for host in ("127.0.0.1", "::1"):
        kept(socket.create_connection((host, port), timeout=10))


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_an_address_listens_on_itself_alone(host: str, family: socket.AddressFamily) -> None:
    sock = kept(listen_tcp(ListenAddress(host, 0), "agents"))
    assert sock.family == family
    assert sock.getsockname()[0] == host
    assert not sock.getblocking()
    other = "::1" if host == "127.0.0.1" else "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, sock.getsockname()[1]), timeout=10)


def test_a_port_that_is_taken_is_named_with_its_purpose_and_a_remedy() -> None:
    taken = kept(listen_tcp(ListenAddress("127.0.0.1", 0), "agents"))
    port = taken.getsockname()[1]
    error = refusal(listen_tcp, ListenAddress("127.0.0.1", port), "agents")
    assert (error.code, error.what) == ("UMB023", f"cannot listen on 127.0.0.1:{port} for agents")
    assert error.why == "Address already in use"
    assert f":{port}" in error.remedy


def test_a_port_that_is_taken_on_every_interface_is_named() -> None:
    port = kept(listen_tcp(ListenAddress("", 0), "agents")).getsockname()[1]
    error = refusal(listen_tcp, ListenAddress("", port), "agents")
    assert error.what == f"cannot listen on *:{port} for agents"


def test_an_address_of_another_machine_is_refused() -> None:
    error = refusal(listen_tcp, ListenAddress("192.0.2.1", 0), "clients")
    assert (error.code, error.why) == ("UMB023", "Cannot assign requested address")


def test_a_unix_socket_is_open_for_owner_and_group_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "proxy.sock"
    seen: set[int] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                seen.add(stat.S_IMODE(os.lstat(path).st_mode))
            except OSError:
                continue

    watcher = threading.Thread(target=look)
    watcher.start()
    old_mask = os.umask(0o022)
    try:
        for _ in range(50):
            listen_unix(UnixFrontend(path)).close()
        assert os.umask(0o022) == 0o022, "the mask of the process must come back"
    finally:
        os.umask(old_mask)
        stop.set()
        watcher.join(10)
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o770
    assert seen <= {0o770}


def test_a_stale_socket_file_is_replaced_and_reported(tmp_path: Path, caplog: Logged) -> None:
    path = tmp_path / "proxy.sock"
    listen_unix(UnixFrontend(path)).close()
    assert path.is_socket()
    kept(listen_unix(UnixFrontend(path)))
    kept(socket.socket(socket.AF_UNIX)).connect(str(path))
    told = f"UMB410 replaced the socket file {path}: no process listens on it; a previous server was killed"
    assert caplog.messages == [told]


def test_a_socket_that_another_server_holds_is_taken_over_and_reported(tmp_path: Path, caplog: Logged) -> None:
    """As upstream's --delete-existing-uds-file does, but not in silence."""
    path = tmp_path / "proxy.sock"
    kept(listen_unix(UnixFrontend(path)))
    assert caplog.messages == []
    kept(listen_unix(UnixFrontend(path)))
    assert [message[:6] for message in caplog.messages] == ["UMB411"]


def test_a_stale_socket_file_is_in_the_way_when_it_may_not_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "proxy.sock"
    listen_unix(UnixFrontend(path)).close()
    error = refusal(listen_unix, UnixFrontend(path, replace_existing=False))
    assert (error.code, error.why) == ("UMB024", "Address already in use")
    assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
@pytest.mark.parametrize("replace", [True, False])
def test_whatever_is_not_a_socket_is_left_alone(tmp_path: Path, kind: str, replace: bool) -> None:
    path = tmp_path / "proxy.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    error = refusal(listen_unix, UnixFrontend(path, replace))
    assert error.code == "UMB024"
    assert str(path) in error.what
    if replace:
        assert error.why == "the path exists and is not a socket"
    assert os.path.lexists(path)
    assert kind != "file" or path.read_text() == "precious"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "proxy.sock"
    error = refusal(listen_unix, UnixFrontend(path))
    assert (error.code, error.why) == ("UMB024", "No such file or directory")
    assert str(path.parent) in error.remedy


def test_a_path_that_is_too_long_is_reported(tmp_path: Path) -> None:
    error = refusal(listen_unix, UnixFrontend(tmp_path / ("x" * 120)))
    assert "too long" in error.why
