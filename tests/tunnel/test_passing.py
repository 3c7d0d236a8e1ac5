"""Connections that one process accepts and passes to another, and which one gets them."""

import socket
from collections.abc import Iterator

import pytest

from umbilical.tunnel.listening import AcceptRule, PassedListener
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.passing import MOST_HOSTS, AgentPassing, Passing


class Desk:
    """A supervisor's side and its workers' sides, in one process."""

    def __init__(self, workers: int, kind: type[Passing] = Passing) -> None:
        self.loop = Loop()
        self.passing = kind(self.loop, workers)
        self.ends: list[socket.socket] = []
        self.sockets: list[socket.socket] = []
        for index in range(workers):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            theirs.setblocking(False)
            self.passing.over[index] = ours
            self.ends.append(theirs)
            self.sockets += [ours, theirs]

    def connection(self) -> socket.socket:
        """The accepted end of a connection over TCP."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.sockets.append(socket.create_connection(listener.getsockname()))
            return listener.accept()[0]

    def pass_some(self, count: int) -> None:
        for _ in range(count):
            self.passing.accepted(self.connection())

    def close(self) -> None:
        self.passing.close()
        for sock in self.sockets:
            sock.close()
        self.loop.close()


@pytest.fixture
def desks() -> Iterator[list[Desk]]:
    opened: list[Desk] = []
    yield opened
    for desk in opened:
        desk.close()


def test_clients_go_to_each_worker_in_its_turn(desks: list[Desk]) -> None:
    desks.append(desk := Desk(3))
    desk.pass_some(9)
    assert desk.passing.passed == [3, 3, 3]


def test_a_worker_without_a_process_is_left_out(desks: list[Desk]) -> None:
    desks.append(desk := Desk(2))
    desk.passing.over[0] = None
    desk.pass_some(4)
    assert desk.passing.passed == [0, 4]


def test_a_worker_whose_end_is_closed_is_left_out(desks: list[Desk]) -> None:
    desks.append(desk := Desk(2))
    desk.ends[0].close()
    desk.pass_some(4)
    assert desk.passing.passed == [0, 4]


def test_a_connection_that_nobody_takes_is_held_and_the_listener_waits(desks: list[Desk]) -> None:
    desks.append(desk := Desk(1))
    over = desk.passing.over[0]
    assert over is not None
    over.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel makes it a few kilobytes
    passed = 0
    while desk.passing.has_space(0):
        desk.pass_some(1)
        passed += 1
        assert passed < 1_000
    assert not desk.passing.flush()
    arrived: list[socket.socket] = []
    listener = PassedListener(desk.loop, desk.ends[0], arrived.append, AcceptRule())
    for _ in range(passed + 2):
        desk.loop.turn(0.06)
    desk.sockets += arrived
    assert len(arrived) == passed
    assert desk.passing.has_space(0)
    assert all(sock.family == socket.AF_INET and not sock.getblocking() for sock in arrived)
    assert not any(sock.get_inheritable() for sock in arrived)
    listener.close()


def test_a_listener_ends_with_the_process_that_passes(desks: list[Desk]) -> None:
    desks.append(desk := Desk(1))
    arrived: list[socket.socket] = []
    PassedListener(desk.loop, desk.ends[0], arrived.append, AcceptRule())
    over = desk.passing.over[0]
    assert over is not None
    over.close()
    desk.loop.turn(0.1)
    assert arrived == []
    assert desk.ends[0].fileno() == -1


def test_one_agent_reaches_every_worker_with_as_few_dials_as_there_are(desks: list[Desk]) -> None:
    desks.append(desk := Desk(4, AgentPassing))
    for _ in range(5):
        before = list(desk.passing.passed)
        desk.pass_some(4)
        assert [after - earlier for earlier, after in zip(before, desk.passing.passed, strict=True)] == [1, 1, 1, 1]


def test_two_agents_that_dial_in_turn_from_one_address_do_not_keep_their_workers(desks: list[Desk]) -> None:
    """In a fixed order each would meet the same worker again and again."""
    desks.append(desk := Desk(2, AgentPassing))
    reached: tuple[set[int], set[int]] = (set(), set())
    for dial in range(80):  # each misses a worker forty times with a chance of one in 10^12
        before = list(desk.passing.passed)
        desk.pass_some(1)
        reached[dial % 2].add([new != old for new, old in zip(desk.passing.passed, before, strict=True)].index(True))
    assert reached == ({0, 1}, {0, 1})


def test_hosts_are_forgotten_where_there_are_too_many(desks: list[Desk]) -> None:
    desks.append(desk := Desk(2, AgentPassing))
    passing = desk.passing
    assert isinstance(passing, AgentPassing)
    for number in range(MOST_HOSTS + 10):
        passing._rounds[f"host {number}"] = [0]
    desk.pass_some(1)
    assert len(passing._rounds) <= MOST_HOSTS + 10
