"""Small frames that we send, read back by `hyperframe`, which h2 stands on."""

from hyperframe import frame as reference
from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire.http2 import frames

STREAM_ID = st.integers(1, 2**31 - 1)
U31 = st.integers(0, 2**31 - 1)
U32 = st.integers(0, 2**32 - 1)


def read(octets: bytes) -> list[reference.Frame]:
    found = []
    while octets:
        one, length = reference.Frame.parse_frame_header(memoryview(octets[:9]))
        one.parse_body(memoryview(octets[9 : 9 + length]))
        found.append(one)
        octets = octets[9 + length :]
    return found


def test_settings_are_read_back() -> None:
    settings = [(frames.MAX_FRAME_SIZE, 65_536), (frames.INITIAL_WINDOW_SIZE, 2**31 - 1)]
    encoded = frames.settings_frame(settings)
    (one,) = read(encoded)
    assert isinstance(one, reference.SettingsFrame)
    assert one.settings == dict(settings)
    assert frames.parse_settings(encoded[9:]) == settings
    (ack,) = read(frames.SETTINGS_ACK)
    assert "ACK" in ack.flags


@given(st.binary(min_size=8, max_size=8))
def test_a_ping_and_its_answer_are_read_back(payload: bytes) -> None:
    for flags in (0, frames.ACK):
        (one,) = read(frames.ping_frame(payload, flags))
        assert isinstance(one, reference.PingFrame)
        assert (one.opaque_data, "ACK" in one.flags) == (payload, flags == frames.ACK)


@given(STREAM_ID, U32)
def test_a_reset_is_read_back(stream_id: int, code: int) -> None:
    (one,) = read(frames.reset_frame(stream_id, code))
    assert isinstance(one, reference.RstStreamFrame)
    assert (one.stream_id, one.error_code) == (stream_id, code)


@given(U31, st.integers(1, 2**31 - 1))
def test_a_window_update_is_read_back(stream_id: int, increment: int) -> None:
    (one,) = read(frames.window_update_frame(stream_id, increment))
    assert isinstance(one, reference.WindowUpdateFrame)
    assert (one.stream_id, one.window_increment) == (stream_id, increment)


@given(U31, U32, st.binary(max_size=300))
def test_a_goaway_is_read_back(last_stream_id: int, code: int, debug: bytes) -> None:
    (one,) = read(frames.goaway_frame(last_stream_id, code, debug))
    assert isinstance(one, reference.GoAwayFrame)
    assert (one.last_stream_id, one.error_code, one.additional_data) == (last_stream_id, code, debug)


@given(STREAM_ID, st.binary(max_size=100), st.integers(1, 30), st.booleans())
def test_a_header_block_is_cut_into_frames_and_nothing_is_lost(
    stream_id: int, block: bytes, limit: int, end_stream: bool
) -> None:
    found = read(frames.headers_frames(stream_id, block, limit, end_stream))
    assert {one.stream_id for one in found} == {stream_id}
    assert (
        b"".join(one.data for one in found if isinstance(one, reference.HeadersFrame | reference.ContinuationFrame))
        == block
    )
    assert ["END_HEADERS" in one.flags for one in found] == [False] * (len(found) - 1) + [True]
    assert isinstance(found[0], reference.HeadersFrame)
    assert ("END_STREAM" in found[0].flags) == end_stream
    assert all(isinstance(one, reference.ContinuationFrame) for one in found[1:])
    assert all(one.body_len <= limit for one in found)


@given(st.binary(min_size=4, max_size=12))
def test_numbers_are_read_where_they_stand(octets: bytes) -> None:
    position = len(octets) - 4
    assert frames.parse_u32(octets, position) == int.from_bytes(octets[position:], "big")
