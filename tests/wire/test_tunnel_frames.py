"""A tunnel's own stream: its opening is the same for all, its payload plain DATA frames."""

from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire.http2 import frames
from umbilical.wire.http2.headers import HeaderDecoder, encode_headers
from umbilical.wire.tunnel_frames import ANSWER_HEADERS, OPENING_HEADERS, TUNNEL_PATH, PlainPrefix


@given(st.integers(1, frames.LARGEST_STREAM_ID), st.lists(st.integers(0, frames.LARGEST_FRAME_BYTES), max_size=5))
def test_a_prefix_is_the_header_of_a_data_frame_without_flags(stream_id: int, lengths: list[int]) -> None:
    prefix = PlainPrefix(stream_id)
    for length in [*lengths, *lengths]:
        octets = prefix.for_length(length)
        assert len(octets) == prefix.size == frames.FRAME_HEADER_BYTES
        assert octets == frames.frame_header(length, frames.DATA, 0, stream_id)


def test_opening_and_answer_pass_through_header_compression_and_leave_no_trace_in_its_table() -> None:
    decoder = HeaderDecoder()
    decoder.decode(encode_headers([(b":status", b"200"), (b"serverid", b"s")]))
    block = encode_headers(OPENING_HEADERS)
    for _ in range(3):
        assert decoder.decode(block) == OPENING_HEADERS
        assert decoder.decode(encode_headers(ANSWER_HEADERS)) == ANSWER_HEADERS
    assert dict(OPENING_HEADERS)[b":path"] == TUNNEL_PATH
