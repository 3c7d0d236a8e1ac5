"""Flow control in every order of events against `h2`, which raises an error if we overrun its windows."""

from collections.abc import Callable
from typing import Final

import h2.events
import h2.settings
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.wire.http2.ends import REQUEST, Ours, Theirs, one_stream, open_stream, our_pair, pump
from tests.wire.http2.traffic import TUNNELS, Traffic

from umbilical.wire.grpc import RESPONSE_HEADERS
from umbilical.wire.http2 import streams
from umbilical.wire.http2.buffers import Block, Inbox
from umbilical.wire.http2.flood_guard import TokenBucket
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import PlainPrefix

SETTING: Final = h2.settings.SettingCodes
SIZES = st.sampled_from([1, 100, 5_000, 16_384, 40_000, 100_000])
WINDOWS = st.sampled_from([0, 1, 700, 16_383, 16_384, 30_000, 65_535, 200_000])


class FlowControl(RuleBasedStateMachine):
    """One stream; both ends send when they like, and give credit and carry bytes in pieces when they like."""

    ours: Ours
    theirs: Theirs
    stream: Stream
    traffic: Traffic

    @initialize(ours_is_client=st.booleans(), window=st.sampled_from([65_535, 100_000, 1 << 20]))
    def open(self, ours_is_client: bool, window: int) -> None:
        limits = ConnectionLimits(stream_window_bytes=window, connection_window_bytes=max(window, 70_000))
        self.ours = Ours(ours_is_client, limits, gives_credit=False)
        self.theirs = Theirs(not ours_is_client, gives_credit=False)
        pump(self.ours, self.theirs)
        if ours_is_client:
            self.stream = self.ours.connection.sender.open_stream(REQUEST)
            pump(self.ours, self.theirs)
            self.theirs.http2.send_headers(1, RESPONSE_HEADERS)
        else:
            self.theirs.http2.send_headers(1, REQUEST)
            pump(self.ours, self.theirs)
            self.stream = self.ours.stream(1)
            self.ours.connection.sender.send_headers(self.stream, RESPONSE_HEADERS)
        self.traffic = Traffic(self.ours, self.stream)
        self.sent_by_theirs = b""
        self.settings_sent_by_theirs = 1
        self.credited_by_ours = 0
        self.credited_by_theirs = 0

    @rule(tunnel=st.sampled_from(TUNNELS), size=SIZES)
    def write_payload(self, tunnel: int, size: int) -> None:
        self.traffic.payload(tunnel, size)

    @rule(padding=st.sampled_from([0, 0, 0, 500, 20_000, 80_000]))
    def send_message(self, padding: int) -> None:
        self.traffic.message(padding)

    @rule(tunnel=st.sampled_from(TUNNELS))
    def send_ordered(self, tunnel: int) -> None:
        self.traffic.ordered(tunnel)

    @rule(size=SIZES, padding=st.sampled_from([None, None, 0, 255]))
    def they_send(self, size: int, padding: int | None) -> None:
        overhead = 0 if padding is None else padding + 1
        room = min(self.theirs.http2.local_flow_control_window(1), self.theirs.http2.max_outbound_frame_size) - overhead
        payload = bytes((len(self.sent_by_theirs) % 251,)) * min(size, room)
        if payload:
            self.theirs.http2.send_data(1, payload, pad_length=padding)
            self.sent_by_theirs += payload

    @rule(window=WINDOWS)
    def they_change_the_initial_window(self, window: int) -> None:
        self._they_change(SETTING.INITIAL_WINDOW_SIZE, window)

    @rule(size=st.sampled_from([16_384, 17_000, 60_000]))
    def they_change_the_frame_size(self, size: int) -> None:
        self._they_change(SETTING.MAX_FRAME_SIZE, size)

    def _they_change(self, setting: h2.settings.SettingCodes, value: int) -> None:
        """One change at a time: h2 takes the first acknowledgement for both changes."""
        if len(self.theirs.of(h2.events.SettingsAcknowledged)) == self.settings_sent_by_theirs:
            self.theirs.http2.update_settings({setting: value})
            self.settings_sent_by_theirs += 1

    @rule(count=st.sampled_from([1, 9, 1_000, 20_000, 1 << 30]))
    def carry_from_ours(self, count: int) -> None:
        self.theirs.give(self.ours.take(count))

    @rule(count=st.sampled_from([1, 9, 1_000, 20_000, 1 << 30]))
    def carry_from_theirs(self, count: int) -> None:
        self.ours.give(self.theirs.take(count))

    @rule(count=SIZES)
    def we_give_credit(self, count: int) -> None:
        count = min(count, len(self.ours.received.get(1, b"")) - self.credited_by_ours)
        self.ours.connection.credit(self.stream, count)
        self.credited_by_ours += count

    @rule(count=SIZES)
    def they_give_credit(self, count: int) -> None:
        count = min(count, len(self.theirs.received.get(1, b"")) - self.credited_by_theirs)
        self.theirs.http2.acknowledge_received_data(count, 1)
        self.credited_by_theirs += count

    @invariant()
    def nothing_failed(self) -> None:
        assert self.ours.connection.sender.failure is None
        assert "reset" not in self.ours.names()
        assert self.ours.connection.sender.window >= 0
        assert bytes(self.ours.received.get(1, b"")) == self.sent_by_theirs[: len(self.ours.received.get(1, b""))]

    def teardown(self) -> None:
        """Once credit and windows are granted, every byte arrives."""
        if not hasattr(self, "traffic"):
            return
        pump(self.ours, self.theirs)
        self._they_change(SETTING.INITIAL_WINDOW_SIZE, 200_000)
        while True:
            before = len(self.theirs.received.get(1, b""))
            pump(self.ours, self.theirs)
            self.they_give_credit(1 << 30)
            self.we_give_credit(1 << 30)
            pump(self.ours, self.theirs)
            if len(self.theirs.received.get(1, b"")) == before:
                break
        self.nothing_failed()
        assert bytes(self.ours.received.get(1, b"")) == self.sent_by_theirs
        self.traffic.assert_arrived(self.theirs.received.get(1, b""))
        assert self.ours.connection.outbox.is_empty()


TestFlowControl = FlowControl.TestCase
TestFlowControl.settings = settings(max_examples=120, stateful_step_count=50)


def test_nothing_overtakes_a_message_from_the_backlog_among_the_payload() -> None:
    """Part of it may be sent already: the peer would read a control packet as its continuation."""
    state = FlowControl()
    state.open(ours_is_client=False, window=65_535)
    for _ in range(3):
        state.send_message(padding=20_000)
    state.carry_from_ours(count=1 << 30)
    state.write_payload(tunnel=1, size=1)
    state.send_message(padding=20_000)
    state.they_give_credit(count=40_000)
    state.carry_from_theirs(count=1_000)
    state.send_message(padding=0)
    state.teardown()


def test_an_enlarged_window_goes_out_with_the_next_credit() -> None:
    client, server, stream, ours = one_stream(server_limits=ConnectionLimits(stream_window_bytes=70_000))
    server.connection.enlarge(ours, 140_000)
    server.connection.credit(ours, 0)
    pump(client, server)
    assert (ours.window, ours.receive_window, stream.send_window) == (140_000, 140_000, 140_000)
    server.connection.enlarge(ours, 100_000)
    assert ours.window == 140_000, "a window never shrinks"


def test_one_stream_may_be_credited_by_its_reader_while_another_is_on_arrival() -> None:
    limits = ConnectionLimits(stream_window_bytes=70_000, credits_on_arrival=True)
    client, server = our_pair(server_limits=limits)
    server.gives_credit = False
    slow, ours = open_stream(client, server)
    ours.credited_by_caller = True
    quick, _ = open_stream(client, server)
    for stream in (slow, quick):
        for _ in range(3):
            client.write(stream, PlainPrefix(stream.stream_id), bytes(16_000))
            pump(client, server)
    assert slow.send_window == 70_000 - 3 * 16_000
    assert quick.send_window > slow.send_window
    server.connection.credit(ours, 3 * 16_000)
    pump(client, server)
    assert slow.send_window == 70_000


def test_the_window_of_a_connection_can_be_enlarged_and_is_credited_by_its_new_size() -> None:
    client, server, _, _ = one_stream(server_limits=ConnectionLimits(connection_window_bytes=100_000))
    server.connection.enlarge_connection(400_000)
    server.connection.enlarge_connection(50_000)
    pump(client, server)
    assert client.connection.sender.window == 400_000


def spend(bucket: TokenBucket, count: int, now: float) -> int:
    return sum(bucket.spend(now) for _ in range(count))


def test_time_refills_up_to_the_burst() -> None:
    bucket = TokenBucket(10, 2.0)
    spend(bucket, 10, 100.0)
    assert spend(bucket, 20, 103.0) == 6
    assert spend(bucket, 20, 1_000_000.0) == 10


def test_a_clock_that_stops_or_runs_backwards_refills_nothing() -> None:
    bucket = TokenBucket(3, 1000.0)
    spend(bucket, 3, 50.0)
    assert not bucket.spend(50.0)
    assert not bucket.spend(10.0)


def test_an_overdrawn_peer_recovers_by_waiting() -> None:
    bucket = TokenBucket(2, 1.0)
    spend(bucket, 3, 0.0)
    assert not bucket.spend(1.0)
    assert bucket.spend(100.0)


def test_traffic_earns_a_few_back_but_not_a_new_burst() -> None:
    bucket = TokenBucket(1000, 0.0)
    spend(bucket, 1000, 0.0)
    bucket.refill(4)
    assert spend(bucket, 100, 0.0) == 4


def test_traffic_never_earns_more_than_the_burst() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.refill(1_000)
    assert spend(bucket, 100, 0.0) == 10


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [(Stream.end_local, Stream.end_remote, (False, True)), (Stream.end_remote, Stream.end_local, (True, False))],
    ids=["ours first", "theirs first"],
)
def test_a_stream_is_closed_when_both_ends_are_and_stays_so(
    first: Callable[[Stream], None], second: Callable[[Stream], None], between: tuple[bool, bool]
) -> None:
    stream = Stream(1, 0, 0)
    first(stream)
    assert (stream.can_send(), stream.can_receive()) == between
    for end in (second, first, second):
        end(stream)
        assert stream.state == streams.CLOSED
        assert (stream.can_send(), stream.can_receive()) == (False, False)


def receive(inbox: Inbox, octets: bytes) -> None:
    inbox.room()[: len(octets)] = octets
    inbox.end += len(octets)


def rest(inbox: Inbox) -> bytes:
    return bytes(inbox.view[inbox.start : inbox.end])


@pytest.mark.parametrize(
    ("received", "consumed", "room", "start"),
    [(b"12345678", 8, 8, 0), (b"123456", 4, 6, 0), (b"1234", 3, 4, 3)],
    ids=["all was consumed", "room got scarce: the rest moves to the front", "half is free: nothing moves"],
)
def test_what_was_consumed_makes_room_again(received: bytes, consumed: int, room: int, start: int) -> None:
    inbox = Inbox(Block(8), shared=False)
    receive(inbox, received)
    assert len(inbox.room()) == 8 - len(received)
    inbox.start = consumed
    assert (len(inbox.room()), inbox.start) == (room, start)
    assert rest(inbox) == received[consumed:]


def test_settle_leaves_an_unshared_block_unchanged() -> None:
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


def test_an_inbox_that_may_gets_a_block_of_its_own_at_its_first_bulk_and_keeps_every_byte() -> None:
    block = Block(16_384)
    bulky, small = Inbox(block, shared=True, may_own=True), Inbox(block, shared=True, may_own=True)
    for inbox, size in ((bulky, 5_000), (small, 100)):
        inbox.room()[: 200 + size] = bytes(200) + b"x" * size
        inbox.start, inbox.end = 200, 200 + size
        inbox.settle()
    block.data[:] = b"?" * block.size
    assert (small.view is block.view, bulky.view is block.view) == (True, False)
    for inbox, size in ((bulky, 5_000), (small, 100)):
        inbox.room()[:3] = b"end"
        inbox.end += 3
        assert bytes(inbox.view[inbox.start : inbox.end]) == b"x" * size + b"end"
        inbox.start = inbox.end
        inbox.settle()
