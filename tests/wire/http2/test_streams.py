"""The states of a stream."""

import pytest

from umbilical.wire.http2 import streams
from umbilical.wire.http2.streams import Stream


def test_an_open_stream_goes_both_ways() -> None:
    stream = Stream(1, 10, 20)
    assert (stream.stream_id, stream.send_window, stream.receive_window) == (1, 10, 20)
    assert stream.can_send()
    assert stream.can_receive()


@pytest.mark.parametrize("local_first", [True, False])
def test_a_stream_is_closed_when_both_ends_are(local_first: bool) -> None:
    stream = Stream(1, 0, 0)
    if local_first:
        stream.end_local()
        assert (stream.can_send(), stream.can_receive()) == (False, True)
        stream.end_remote()
    else:
        stream.end_remote()
        assert (stream.can_send(), stream.can_receive()) == (True, False)
        stream.end_local()
    assert stream.state == streams.CLOSED
    assert not stream.can_send()
    assert not stream.can_receive()


def test_ending_a_closed_stream_changes_nothing() -> None:
    stream = Stream(1, 0, 0)
    stream.state = streams.CLOSED
    stream.end_local()
    stream.end_remote()
    assert stream.state == streams.CLOSED
