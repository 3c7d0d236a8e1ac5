"""Received bytes: kept until they are consumed, also where several connections share one block."""

from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire.buffer import Block
from umbilical.wire.http2.inbox import Inbox


def receive(inbox: Inbox, octets: bytes) -> None:
    inbox.room()[: len(octets)] = octets
    inbox.end += len(octets)


def rest(inbox: Inbox) -> bytes:
    return bytes(inbox.view[inbox.start : inbox.end])


def test_what_was_consumed_makes_room_again() -> None:
    inbox = Inbox(Block(8), shared=False)
    receive(inbox, b"12345678")
    assert len(inbox.room()) == 0
    inbox.start = 8
    assert len(inbox.room()) == 8


def test_an_unfinished_rest_moves_to_the_front_when_room_gets_scarce() -> None:
    inbox = Inbox(Block(8), shared=False)
    receive(inbox, b"123456")
    inbox.start = 4
    assert len(inbox.room()) == 6
    assert rest(inbox) == b"56"


def test_nothing_is_moved_while_half_the_block_is_free() -> None:
    inbox = Inbox(Block(8), shared=False)
    receive(inbox, b"1234")
    inbox.start = 3
    assert len(inbox.room()) == 4
    assert inbox.start == 3


def test_settling_leaves_a_block_of_its_own_as_it_is() -> None:
    inbox = Inbox(Block(8), shared=False)
    receive(inbox, b"1234")
    inbox.settle()
    assert rest(inbox) == b"1234"


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=6), st.integers(0, 12)), max_size=30))
def test_connections_that_share_a_block_never_see_each_others_bytes(steps: list[tuple[int, bytes, int]]) -> None:
    block = Block(64)
    inboxes = [Inbox(block, shared=True) for _ in range(3)]
    expected = [b"", b"", b""]
    for who, octets, consumed in steps:
        inbox = inboxes[who]
        if len(expected[who]) + len(octets) > block.size:
            continue
        receive(inbox, octets)
        expected[who] += octets
        assert rest(inbox) == expected[who]
        inbox.start += min(consumed, len(expected[who]))
        expected[who] = expected[who][consumed:]
        inbox.settle()
