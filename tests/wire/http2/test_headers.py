"""Header lists through `hpack`: what is remembered, what must not be, and what is refused."""

from collections.abc import Iterator

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.grpc import request_headers
from umbilical.wire.http2 import headers as module
from umbilical.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM
from umbilical.wire.http2.headers import (
    MAX_HEADER_LIST_BYTES,
    HeaderDecoder,
    HeaderList,
    encode_headers,
    has_capitals,
)

REQUEST = request_headers(b"/AgentService/Connect", b"server:8091", b"https", b"grpc-go/1.83.0")
NAMES = st.sampled_from([b":path", b":status", b"content-type", b"agentid", b"x-a", b"x-b", b"user-agent"])
LISTS = st.lists(st.tuples(NAMES, st.binary(max_size=20)), max_size=8)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    HeaderDecoder._first_blocks.clear()
    module._encode.cache_clear()
    yield
    HeaderDecoder._first_blocks.clear()


def huffman(headers: HeaderList) -> bytes:
    """A block for the real decoder that leaves its table alone."""
    fields = [hpack.NeverIndexedHeaderTuple(name, value) for name, value in headers]
    return bytes(hpack.Encoder().encode(fields, huffman=True))


def encoded(encoder: hpack.Encoder, headers: HeaderList) -> bytes:
    return encoder.encode(headers)


@given(LISTS)
def test_what_we_encode_is_what_hpack_decodes(headers: HeaderList) -> None:
    decoded = hpack.Decoder().decode(encode_headers(headers), raw=True)
    assert [(bytes(name), bytes(value)) for name, value in decoded] == headers


@given(st.lists(LISTS, max_size=4))
def test_our_blocks_leave_the_peers_table_empty(lists: list[HeaderList]) -> None:
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    decoder.header_table_size = 0
    for headers in lists:
        decoder.decode(encode_headers(headers), raw=True)
        assert not decoder.header_table.dynamic_entries


def test_equal_lists_are_encoded_once() -> None:
    assert encode_headers(list(REQUEST)) is encode_headers(list(REQUEST))


@pytest.mark.parametrize("name", [b"authorization", b"Authorization"])
def test_secrets_stay_behind_in_no_cache(name: bytes) -> None:
    headers = [*REQUEST, (name, b"Bearer secret")]
    block = encode_headers(headers)
    assert b"secret" in block, "the test looks for it in vain if it were Huffman-coded"
    assert module._encode.cache_info().currsize == 0
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
def test_blocks_that_come_again_decode_alike_whatever_happened_to_the_table(
    lists: list[tuple[HeaderList, bool]],
) -> None:
    """Each block is judged by a decoder without memory; some change the table, so that old bytes mean something new."""
    encoder, oracle, decoder = hpack.Encoder(), hpack.Decoder(), HeaderDecoder()
    for headers, indexed in lists:
        block = encoded(encoder, headers) if indexed else huffman(headers)
        for again in (block, block):
            expected = [(bytes(name), bytes(value)) for name, value in oracle.decode(again, raw=True)]
            assert decoder.decode(again) == expected


def test_a_block_that_leaves_the_table_alone_is_decoded_once() -> None:
    decoder = HeaderDecoder()
    decoder.decode(huffman(REQUEST))
    block = huffman([(b"x-once", b"more")])
    decoder.decode(block)
    decoder._decoder = None
    decoder._replay = b"not a header block at all"
    assert decoder.decode(block) == [(b"x-once", b"more")]


def test_whoever_changes_a_decoded_list_changes_only_his_own() -> None:
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


def test_a_small_block_that_unfolds_into_a_large_list_is_refused() -> None:
    bomb = hpack.Encoder().encode([(b"x-bomb", b"0" * 4_000)]) + b"\xbe" * 20
    assert len(bomb) < 4_100
    with pytest.raises(ProtocolViolation) as refused:
        HeaderDecoder().decode(bomb)
    assert refused.value.code == ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbf",  # an entry that nobody made
        b"\xff" * 30,  # a number without end
        b"\x3f\xff\xff\x7f",  # a table larger than we allow
        b"\x82\x20",  # a table update behind a header
        b"\x40\x05abc",  # a name cut short
        b"\x00\x81\xff\x00",  # bad Huffman padding
    ],
)
def test_a_malformed_block_is_the_peers_fault(block: bytes) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        HeaderDecoder().decode(block)
    assert refused.value.code == COMPRESSION_ERROR
    assert "0x" not in refused.value.message, "where things lie in our memory is nobody's business"
    assert not HeaderDecoder._first_blocks


@given(st.binary(max_size=60))
def test_garbage_is_decoded_alike_with_and_without_memory(block: bytes) -> None:
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
