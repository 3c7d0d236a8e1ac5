"""Small frames that we send, read back by `hyperframe`, the frame parser of h2."""

from collections.abc import Iterator

import hpack
import pytest
from hpack.table import HeaderTable
from hyperframe import frame as reference
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wire.http2.ends import HEADERS, greeted_server, settings_frame, split

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.grpc import OK, RESPONSE_HEADERS, request_headers, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2 import headers as plain_headers
from umbilical.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM
from umbilical.wire.http2.headers import (
    MAX_HEADER_LIST_BYTES,
    STATIC_TABLE,
    HeaderDecoder,
    HeaderList,
    encode_headers,
    has_capitals,
)

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


REQUEST = request_headers(b"/AgentService/Connect", b"server:8091", b"https", b"grpc-go/1.83.0")
NAMES = st.sampled_from([b":path", b":status", b"content-type", b"agentid", b"x-a", b"x-b", b"user-agent"])
LISTS = st.lists(st.tuples(NAMES, st.binary(max_size=20)), max_size=8)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    HeaderDecoder._first_blocks.clear()
    plain_headers._encode.cache_clear()
    yield
    HeaderDecoder._first_blocks.clear()


def huffman(headers: HeaderList) -> bytes:
    """A block that only hpack can decode and that does not change its table."""
    fields = [hpack.NeverIndexedHeaderTuple(name, value) for name, value in headers]
    return bytes(hpack.Encoder().encode(fields, huffman=True))


def encoded(encoder: hpack.Encoder, headers: HeaderList) -> bytes:
    return encoder.encode(headers)


def test_equal_lists_are_encoded_once() -> None:
    assert encode_headers(list(REQUEST)) is encode_headers(list(REQUEST))


@pytest.mark.parametrize("name", [b"authorization", b"Authorization"])
def test_secrets_are_not_cached(name: bytes) -> None:
    headers = [*REQUEST, (name, b"Bearer secret")]
    block = encode_headers(headers)
    assert b"secret" in block, "Huffman code would hide the secret from this test"
    assert plain_headers._encode.cache_info().currsize == 0
    for kind in (block, huffman(headers)):
        for _ in range(2):
            assert HeaderDecoder().decode(kind) == headers
    assert not HeaderDecoder._first_blocks


@given(LISTS, LISTS)
def test_the_second_time_a_first_block_is_seen_it_decodes_to_the_same(first: HeaderList, second: HeaderList) -> None:
    for _ in range(2):
        encoder = hpack.Encoder()
        decoder = HeaderDecoder()
        assert decoder.decode(encoded(encoder, first)) == first
        # It uses entries that the first block made, and the third one those of both.
        assert decoder.decode(encoded(encoder, first + second)) == first + second
        assert decoder.decode(encoded(encoder, second + first)) == second + first


def test_a_remembered_block_is_not_decoded_again_until_a_second_one_comes() -> None:
    encoder = hpack.Encoder()
    block = encoded(encoder, REQUEST)
    HeaderDecoder().decode(block)
    decoder = HeaderDecoder()
    decoder.decode(block)
    assert decoder._decoder is None
    assert decoder.decode(encoded(encoder, REQUEST)) == REQUEST
    assert decoder._decoder is not None


@given(st.lists(st.tuples(LISTS, st.booleans()), max_size=8))
def test_repeated_blocks_decode_correctly_after_any_change_of_the_table(
    lists: list[tuple[HeaderList, bool]],
) -> None:
    """A decoder without cache reads each block, too. Some blocks change the table, which changes what others mean."""
    encoder, reference, decoder = hpack.Encoder(), hpack.Decoder(), HeaderDecoder()
    for headers, indexed in lists:
        block = encoded(encoder, headers) if indexed else huffman(headers)
        for again in (block, block):
            expected = [(bytes(name), bytes(value)) for name, value in reference.decode(again, raw=True)]
            assert decoder.decode(again) == expected


def test_a_block_that_does_not_change_the_table_is_decoded_once() -> None:
    decoder = HeaderDecoder()
    decoder.decode(huffman(REQUEST))
    block = huffman([(b"x-once", b"more")])
    decoder.decode(block)
    decoder._decoder = None
    decoder._replay = b"not a header block at all"
    assert decoder.decode(block) == [(b"x-once", b"more")]


def test_changing_a_decoded_list_does_not_change_the_cache() -> None:
    block = huffman(REQUEST)
    HeaderDecoder().decode(block).append((b"x-mine", b"1"))
    HeaderDecoder().decode(block).clear()
    assert HeaderDecoder().decode(block) == REQUEST


def test_large_first_blocks_are_not_remembered() -> None:
    block = huffman([(b"x-large", bytes(2_000))])
    HeaderDecoder().decode(block)
    assert not HeaderDecoder._first_blocks


def test_the_memory_for_first_blocks_is_bounded() -> None:
    for number in range(1_000):
        HeaderDecoder().decode(huffman([(b"x-number", str(number).encode())]))
    assert 0 < len(HeaderDecoder._first_blocks) <= 256


def test_a_list_past_the_limit_is_refused() -> None:
    fits = [(b"x", bytes(MAX_HEADER_LIST_BYTES - 33))]
    assert HeaderDecoder().decode(encode_headers(fits)) == fits
    with pytest.raises(ProtocolViolation) as refused:
        HeaderDecoder().decode(encode_headers([(b"x", bytes(MAX_HEADER_LIST_BYTES - 32))]))
    assert refused.value.code == ENHANCE_YOUR_CALM


def test_a_small_block_that_decodes_to_a_large_list_is_refused() -> None:
    bomb = hpack.Encoder().encode([(b"x-bomb", b"0" * 4_000)]) + b"\xbe" * 20
    assert len(bomb) < 4_100
    with pytest.raises(ProtocolViolation) as refused:
        HeaderDecoder().decode(bomb)
    assert refused.value.code == ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbf",  # an entry that does not exist
        b"\xff" * 30,  # a number without end
        b"\x3f\xff\xff\x7f",  # a table larger than we allow
        b"\x82\x20",  # a table update behind a header
        b"\x40\x05abc",  # an incomplete name
        b"\x00\x81\xff\x00",  # bad Huffman padding
    ],
)
def test_a_malformed_block_is_a_protocol_violation(block: bytes) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        HeaderDecoder().decode(block)
    assert refused.value.code == COMPRESSION_ERROR
    assert "0x" not in refused.value.message, "it must not contain memory addresses"
    assert not HeaderDecoder._first_blocks


@given(st.binary(max_size=60))
def test_garbage_is_decoded_equally_with_and_without_cache(block: bytes) -> None:
    outcomes: list[HeaderList | int] = []
    for _ in range(2):
        try:
            outcomes.append(HeaderDecoder().decode(block))
        except ProtocolViolation as violation:
            outcomes.append(violation.code)
    assert outcomes[0] == outcomes[1]


def test_capitals_are_found_in_names_only() -> None:
    assert has_capitals([(b"te", b"trailers"), (b"X-Id", b"1")])
    assert not has_capitals([(b":path", b"/AgentService/Connect"), (b"x-id", b"ID")])


NAMES_HEADERS = st.one_of(st.sampled_from([name for name, _ in STATIC_TABLE]), st.binary(min_size=1, max_size=300))
VALUES = st.one_of(st.sampled_from([value for _, value in STATIC_TABLE]), st.binary(max_size=300))
LISTS_HEADERS = st.lists(st.tuples(NAMES_HEADERS, VALUES), max_size=12)
LARGE = 1 << 20


def hpack_decoded(block: bytes) -> tuple[HeaderList | None, bool]:
    """What hpack decodes, and whether its table stayed unchanged."""
    decoder = hpack.Decoder(max_header_list_size=LARGE)
    try:
        headers = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.HPACKError:
        return None, False
    untouched = not decoder.header_table.dynamic_entries and decoder.header_table.maxsize == HeaderTable.DEFAULT_SIZE
    return headers, untouched


def test_the_static_table_is_that_of_hpack() -> None:
    assert STATIC_TABLE == HeaderTable.STATIC_TABLE


@given(LISTS_HEADERS)
def test_encoded_headers_decode_here_and_with_hpack_and_do_not_change_its_table(headers: HeaderList) -> None:
    block = plain_headers.encode_plain(headers)
    assert plain_headers.decode_plain(block, LARGE) == headers
    assert hpack_decoded(block) == (headers, True)


@given(st.binary(max_size=60))
@example(b"\x00")
@example(b"\x0f")
@example(b"\x10\x7f\xff\xff\xff\xff\xff\x01")
@example(b"\x80")
@example(b"\xbe")
@example(b"\xff\x00")
def test_hpack_decodes_all_plain_blocks_equally(block: bytes) -> None:
    ours = plain_headers.decode_plain(block, LARGE)
    if ours is not None:
        assert hpack_decoded(block) == (ours, True)


@given(LISTS_HEADERS, st.data())
def test_an_incomplete_block_is_left_to_hpack(headers: HeaderList, data: st.DataObject) -> None:
    block = plain_headers.encode_plain(headers)
    cut = block[: data.draw(st.integers(0, len(block)))]
    ours = plain_headers.decode_plain(cut, LARGE)
    assert ours is None or ours == headers[: len(ours)]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x82\x3f\xe1\x1f", id="a table size"),
        pytest.param(b"\x40\x01a\x01b", id="an entry for the dynamic table"),
        pytest.param(b"\xbe", id="an entry of the dynamic table"),
        pytest.param(hpack.Encoder().encode([(b"x", b"www.example.com")], huffman=True), id="huffman"),
    ],
)
def test_other_kinds_of_blocks_are_left_to_hpack(block: bytes) -> None:
    assert plain_headers.decode_plain(bytes(block), LARGE) is None


def test_a_list_that_is_too_large_is_left_to_hpack_which_refuses_it() -> None:
    block = plain_headers.encode_plain([(b"name", bytes(100))])
    assert plain_headers.decode_plain(block, 136) is not None
    assert plain_headers.decode_plain(block, 135) is None


def test_a_small_header_table_is_announced_in_every_block() -> None:
    """A block may wait behind payload while others overtake it, so each must contain the announcement."""
    server = greeted_server(settings_frame([(frames.HEADER_TABLE_SIZE, 0)]), HEADERS)
    server.connection.sender.send_headers(server.stream(1), RESPONSE_HEADERS)
    server.connection.sender.finish(server.stream(1), trailers(OK, ""))
    for one in split(server.take()):
        decoder = hpack.Decoder()
        decoder.max_allowed_table_size = 0
        decoder.decode(one.payload)
