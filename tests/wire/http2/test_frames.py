"""Small frames that we send, read back by `hyperframe`, the frame parser of h2."""

from hyperframe import frame as reference
from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire.http2 import frames

STREAM_ID = st.integers(1, 2**31 - 1)
U32 = st.integers(0, 2**32 - 1)


def read(octets: bytes) -> list[reference.Frame]:
    found = []
    while octets:
        one, length = reference.Frame.parse_frame_header(memoryview(octets[:9]))
        one.parse_body(memoryview(octets[9 : 9 + length]))
        found.append(one)
        octets = octets[9 + length :]
    return found


def test_settings_are_what_the_reference_writes_and_read_back() -> None:
    settings = {frames.MAX_FRAME_SIZE: 65_536, frames.INITIAL_WINDOW_SIZE: 2**31 - 1}
    encoded = frames.settings_frame(list(settings.items()))
    assert encoded == reference.SettingsFrame(0, settings=settings).serialize()
    assert frames.parse_settings(encoded[9:]) == list(settings.items())
    assert reference.SettingsFrame(0, flags=["ACK"]).serialize() == frames.SETTINGS_ACK


@given(STREAM_ID, st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1), U32, st.binary(min_size=8, max_size=300))
def test_small_frames_are_what_the_reference_writes(
    stream_id: int, any_stream: int, increment: int, code: int, text: bytes
) -> None:
    assert frames.ping_frame(text[:8], 0) == reference.PingFrame(0, text[:8]).serialize()
    assert frames.ping_frame(text[:8], frames.ACK) == reference.PingFrame(0, text[:8], flags=["ACK"]).serialize()
    assert frames.reset_frame(stream_id, code) == reference.RstStreamFrame(stream_id, code).serialize()
    window_update = reference.WindowUpdateFrame(any_stream, increment)
    assert frames.window_update_frame(any_stream, increment) == window_update.serialize()
    for debug in (text, b""):
        assert (
            frames.goaway_frame(any_stream, code, debug)
            == reference.GoAwayFrame(0, any_stream, code, debug).serialize()
        )


@given(STREAM_ID, st.binary(max_size=100), st.integers(1, 30), st.booleans())
def test_a_header_block_is_cut_into_frames_and_nothing_is_lost(
    stream_id: int, block: bytes, limit: int, end_stream: bool
) -> None:
    found = read(frames.headers_frames(stream_id, block, limit, end_stream))
    assert {one.stream_id for one in found} == {stream_id}
    whole = [one.data for one in found if isinstance(one, reference.HeadersFrame | reference.ContinuationFrame)]
    assert b"".join(whole) == block
    assert ["END_HEADERS" in one.flags for one in found] == [False] * (len(found) - 1) + [True]
    assert isinstance(found[0], reference.HeadersFrame)
    assert ("END_STREAM" in found[0].flags) == end_stream
    assert all(isinstance(one, reference.ContinuationFrame) for one in found[1:])
    assert all(one.body_len <= limit for one in found)


@given(st.binary(min_size=4, max_size=12))
def test_numbers_are_read_at_their_position(octets: bytes) -> None:
    position = len(octets) - 4
    assert frames.parse_u32(octets, position) == int.from_bytes(octets[position:], "big")
