"""Messages in DATA payloads, status texts, and the headers of a call."""

from itertools import pairwise
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire import grpc
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.grpc import MAX_MESSAGE_BYTES, MessageReader, message_prefix
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool
from umbilical.wire.http2.headers import HeaderDecoder, encode_headers
from umbilical.wire.packet_data import ANSWER_HEADERS, OPENING_HEADERS, TUNNEL_PATH, PlainPrefix

MESSAGES = st.lists(st.binary(max_size=40), max_size=8)


def _framed(messages: list[bytes]) -> bytes:
    return b"".join(message_prefix(len(message)) + message for message in messages)


def _feed(reader: MessageReader, payload: bytes) -> list[bytes]:
    # The surrounding bytes must never be read: in the receive buffer they belong to other frames.
    source = bytearray(b"\xff\xff\xff" + payload + b"\xff\xff\xff")
    reader.feed(source, memoryview(source), 3, 3 + len(payload))
    messages = []
    while reader.next_message():
        messages.append(bytes(reader.source[reader.start : reader.end]))
        assert reader.view[reader.start : reader.end] == messages[-1]
    return messages


def _feed_pieces(reader: MessageReader, *pieces: bytes) -> list[bytes]:
    return [message for piece in pieces for message in _feed(reader, piece)]


@given(MESSAGES)
def test_messages_fed_one_byte_at_a_time_come_out_whole(messages: list[bytes]) -> None:
    reader = MessageReader()
    assert _feed_pieces(reader, *(bytes((byte,)) for byte in _framed(messages))) == messages
    assert reader._partial is None


@given(MESSAGES, st.lists(st.integers(0, 400)))
def test_messages_cut_anywhere_come_out_whole(messages: list[bytes], cuts: list[int]) -> None:
    framed = _framed(messages)
    edges = [0, *sorted(cut for cut in cuts if cut < len(framed)), len(framed)]
    reader = MessageReader()
    assert _feed_pieces(reader, *(framed[start:end] for start, end in pairwise(edges))) == messages


@given(st.binary(min_size=1, max_size=30), st.data())
def test_the_reader_is_idle_only_between_messages(message: bytes, data: st.DataObject) -> None:
    framed = _framed([message])
    cut = data.draw(st.integers(1, len(framed) - 1))
    reader = MessageReader()
    assert _feed(reader, framed[:cut]) == []
    assert reader._partial is not None
    assert _feed(reader, framed[cut:]) == [message]
    assert reader._partial is None


@given(st.binary(max_size=40), st.binary(max_size=6))
def test_a_payload_that_is_one_message_is_recognised(message: bytes, more: bytes) -> None:
    reader = MessageReader()
    source = bytearray(b"\xff" + _framed([message]) + more)
    assert reader.is_whole(source, 1, len(source)) == (not more)
    for end in range(1, len(source) - len(more)):
        assert not reader.is_whole(source, 1, end)


def test_no_payload_is_whole_while_a_message_is_incomplete() -> None:
    reader = MessageReader()
    _feed(reader, _framed([b"unfinished"])[:7])
    framed = bytearray(_framed([b"whole"]))
    assert not reader.is_whole(framed, 0, len(framed))


@pytest.mark.parametrize("prefix", [b"\x01\0\0\0\0", message_prefix(MAX_MESSAGE_BYTES + 1)])
def test_a_message_that_we_refuse_is_never_whole(prefix: bytes) -> None:
    source = bytearray(prefix + bytes(int.from_bytes(prefix[1:], "big")))
    assert not MessageReader().is_whole(source, 0, len(source))


def test_a_message_that_is_complete_in_the_buffer_is_not_copied() -> None:
    reader = MessageReader()
    source = bytearray(_framed([b"payload"]))
    reader.feed(source, memoryview(source), 0, len(source))
    assert reader.next_message()
    assert reader.source is source


def test_the_largest_message_is_taken_in_pieces() -> None:
    message = bytes(MAX_MESSAGE_BYTES)
    framed = _framed([message])
    reader = MessageReader()
    half = len(framed) // 2
    assert _feed(reader, framed[:half]) == []
    assert _feed(reader, framed[half:]) == [message]


@pytest.mark.parametrize("first", [2, 5], ids=["prefix in two pieces", "prefix at once"])
@pytest.mark.parametrize(
    ("prefix", "code", "why"),
    [
        (message_prefix(MAX_MESSAGE_BYTES + 1), grpc.RESOURCE_EXHAUSTED, r"larger than max \(4194305 vs. 4194304\)"),
        (b"\x01\x00\x00\x00\x02", grpc.INTERNAL, "compression was not negotiated"),
        (b"\xff\xff\xff\xff\xff", grpc.INTERNAL, "message flag 255"),
    ],
)
def test_unacceptable_messages_are_refused_by_their_prefix(prefix: bytes, code: int, why: str, first: int) -> None:
    reader = MessageReader()
    with pytest.raises(ProtocolViolation, match=why) as refused:
        _feed_pieces(reader, prefix[:first], prefix[first:])
    assert refused.value.code == code


@pytest.mark.parametrize("first", [2, 5], ids=["prefix in two pieces", "prefix at once"])
def test_a_refused_message_stays_refused(first: int) -> None:
    reader = MessageReader()
    compressed = b"\x01\x00\x00\x00\x00" + b"x" * 9
    with pytest.raises(ProtocolViolation):
        _feed_pieces(reader, compressed[:first], compressed[first:])
    with pytest.raises(ProtocolViolation):
        reader.next_message()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_status_messages_are_decoded_as_encoded(text: str) -> None:
    encoded = grpc.encode_status_message(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert grpc.decode_status_message(encoded) == text
    assert unquote(encoded.decode()) == text


@given(st.binary())
def test_decoding_a_status_message_never_fails(value: bytes) -> None:
    grpc.decode_status_message(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"100%", "100%"),
        (b"%2", "%2"),
        (b"%zz", "%zz"),
        (b"%+1", "%+1"),
        (b"% 1", "% 1"),
        (b"%-1", "%-1"),
        (b"%ff", "\ufffd"),
    ],
)
def test_invalid_escapes_stay_unchanged(value: bytes, text: str) -> None:
    assert grpc.decode_status_message(value) == text


def test_a_status_message_with_invalid_unicode_is_still_sent() -> None:
    assert grpc.encode_status_message("no \udcff") == b"no ?"


@given(st.integers(0, 16), st.text(st.characters(exclude_categories=["Cs"])))
def test_trailers_carry_status_and_message(status: int, message: str) -> None:
    assert grpc.status_of(grpc.trailers(status, message)) == (status, message)
    assert grpc.status_of(grpc.trailers(status, message)[::-1]) == (status, message)


def test_an_empty_status_message_is_absent() -> None:
    assert grpc.trailers(grpc.OK, "") == [(b"grpc-status", b"0")]


@pytest.mark.parametrize(
    "value", [b"", b"x", b"-1", b"+1", b"1" * 5_000, "٣".encode()], ids=lambda value: repr(value[:8])
)
def test_a_malformed_status_is_unknown(value: bytes) -> None:
    assert grpc.status_of([(b"grpc-status", value), (b"grpc-message", b"why")]) == (grpc.UNKNOWN, "why")


def test_headers_without_a_status_are_unknown() -> None:
    assert grpc.status_of([(b":status", b"200")]) == (grpc.UNKNOWN, "the stream ended without a gRPC status")


def test_request_headers_are_those_of_a_grpc_call() -> None:
    headers = grpc.request_headers(b"/ProxyService/Proxy", b"server:8090", b"https", b"umbilical/1")
    assert headers[:4] == [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":path", b"/ProxyService/Proxy"),
        (b":authority", b"server:8090"),
    ]
    assert dict(headers[4:]) == {
        b"content-type": b"application/grpc",
        b"user-agent": b"umbilical/1",
        b"te": b"trailers",
    }


def test_every_status_code_has_the_name_that_go_prints() -> None:
    assert grpc.CODE_NAMES[grpc.CANCELLED] == "Canceled"
    assert grpc.CODE_NAMES[grpc.UNAVAILABLE] == "Unavailable"
    assert len(grpc.CODE_NAMES) == 17


@given(st.integers(1, frames.LARGEST_STREAM_ID), st.lists(st.integers(0, frames.LARGEST_FRAME_BYTES), max_size=5))
def test_a_prefix_is_the_header_of_a_data_frame_without_flags(stream_id: int, lengths: list[int]) -> None:
    prefix = PlainPrefix(stream_id)
    for length in [*lengths, *lengths]:
        octets = prefix.for_length(length)
        assert len(octets) == prefix.size == frames.FRAME_HEADER_BYTES
        assert octets == frames.frame_header(length, frames.DATA, 0, stream_id)


def test_opening_and_answer_headers_do_not_change_the_header_table() -> None:
    decoder = HeaderDecoder()
    decoder.decode(encode_headers([(b":status", b"200"), (b"serverid", b"s")]))
    block = encode_headers(OPENING_HEADERS)
    for _ in range(3):
        assert decoder.decode(block) == OPENING_HEADERS
        assert decoder.decode(encode_headers(ANSWER_HEADERS)) == ANSWER_HEADERS
    assert dict(OPENING_HEADERS)[b":path"] == TUNNEL_PATH


def test_view_and_data_of_a_block_are_the_same_memory() -> None:
    block = Block(16)
    block.view[3:6] = b"abc"
    assert block.data[3:6] == b"abc"
    assert block.size == len(block.data) == 16


def test_the_pool_lends_returned_blocks_again_and_keeps_a_limited_number() -> None:
    pool = BlockPool(64, 2)
    blocks = [pool.take() for _ in range(5)]
    assert len({id(block) for block in blocks}) == 5
    for block in blocks:
        pool.give(block)
    lent = [pool.take() for _ in range(5)]
    assert sum(any(block is old for old in blocks) for block in lent) == 2
