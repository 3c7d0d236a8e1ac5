"""Header blocks, compared with the `hpack` package, which keeps nothing but its table; and rules for header lists."""

import os
import random
from typing import Final

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wire.http2.ends import HEADERS, greeted_server, settings_frame, split

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.grpc import INTERNAL, OK, RESPONSE_HEADERS, request_headers, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2 import headers as header_blocks
from umbilical.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM
from umbilical.wire.http2.header_rules import content_length, request_fault, response_fault, trailers_fault
from umbilical.wire.http2.headers import (
    MAX_HEADER_LIST_BYTES,
    MAX_TABLE_BYTES,
    STATIC_TABLE,
    HeaderDecoder,
    HeaderList,
    encode_headers,
    encode_plain,
)
from umbilical.wire.http2.huffman import decode_huffman

REQUEST = request_headers(b"/AgentService/Connect", b"server:8091", b"https", b"grpc-go/1.83.0")
HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
NAMES = st.one_of(st.sampled_from([name for name, _ in STATIC_TABLE]), st.binary(min_size=1, max_size=300))
VALUES = st.one_of(st.sampled_from([value for _, value in STATIC_TABLE]), st.binary(max_size=300))
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=12)
SOAK_STEPS: Final = int(os.environ.get("UMBILICAL_SOAK_STEPS", "2000000"))


class Peer:
    """Writes blocks that use and change the dynamic table in every way, some of them not valid."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def block(self) -> bytes:
        choice = self._random
        block = b""
        if choice.random() < 0.15:
            block += _integer(0x20, 0x1F, choice.choice((0, 40, 100, 1000, MAX_TABLE_BYTES, MAX_TABLE_BYTES + 1)))
        return block + b"".join(self._field() for _ in range(choice.randrange(1, 6)))

    def _field(self) -> bytes:
        choice, kind = self._random, self._random.random()
        if kind < 0.35:
            return _integer(0x80, 0x7F, choice.choice((62, 63, 64, choice.randrange(80))))
        if kind < 0.75:
            return self._literal(0x40, 0x3F, choice.choice((0, 0, 1, 4, 62, choice.randrange(70))))
        if kind < 0.97:
            return self._literal(choice.choice((0x00, 0x10)), 0x0F, choice.choice((0, 4, 62)))
        return choice.randbytes(3)

    def _literal(self, flags: int, prefix: int, index: int) -> bytes:
        return _integer(flags, prefix, index) + (b"" if index else self._string()) + self._string()

    def _string(self) -> bytes:
        choice = self._random
        text = bytes(choice.choices(b"abcxyz-/019", k=choice.choice((1, 3, 8, 60, choice.randrange(1, 1500)))))
        if choice.random() < 0.5:
            return _integer(0, 0x7F, len(text)) + text
        code = HUFFMAN.encode(text)
        return _integer(0x80, 0x7F, len(code)) + code


def _integer(flags: int, prefix: int, value: int) -> bytes:
    block = bytearray()
    header_blocks._put_integer(block, flags, prefix, value)
    return bytes(block)


def hpack_list(decoder: hpack.Decoder, block: bytes) -> HeaderList | None:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.HPACKError:
        return None


def our_list(decoder: HeaderDecoder, block: bytes) -> HeaderList | None:
    try:
        return decoder.decode(block)
    except ProtocolViolation:
        return None


def compare_with_hpack(seed: int, steps: int) -> int:
    """Return how many blocks were valid. Each run of blocks ends with the first that is not."""
    peer, valid = Peer(seed), 0
    ours, theirs = HeaderDecoder(), hpack.Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)
    for step in range(steps):
        block = peer.block()
        expected = hpack_list(theirs, block)
        assert our_list(ours, block) == expected, f"seed {seed}, step {step}: {block.hex()}"
        if expected is None:
            ours, theirs = HeaderDecoder(), hpack.Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)
        else:
            valid += 1
    return valid


def test_every_sequence_of_blocks_decodes_as_with_hpack() -> None:
    assert compare_with_hpack(seed=1, steps=4_000) > 1_000


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_millions_of_blocks_decode_as_with_hpack() -> None:
    assert compare_with_hpack(seed=random.SystemRandom().randrange(1 << 32), steps=SOAK_STEPS) > SOAK_STEPS // 4


@pytest.mark.parametrize(
    "inserts",
    [
        pytest.param([(b"x-a", b"1" * 1900), (b"x-b", b"2" * 1900)], id="two evicting inserts in one block"),
        pytest.param([(b"x-a", b"1" * 4000)], id="the table emptied and refilled"),
    ],
)
def test_an_index_names_the_newest_entry_after_evictions(inserts: HeaderList) -> None:
    decoder = HeaderDecoder()
    for number in range(300):
        fields = [(name, b"%d" % number + value) for name, value in inserts]
        block = b"".join(_integer(0x40, 0x3F, 0) + encode_plain([field])[1:] for field in fields)
        assert decoder.decode(block) == fields
        assert decoder.decode(b"\xbe") == [fields[-1]]


@given(st.binary(max_size=40))
@example(b"\xff\xff\xff\xff")
@example(b"")
def test_huffman_code_decodes_as_with_hpack(code: bytes) -> None:
    block = _integer(0x00, 0x0F, 1) + _integer(0x80, 0x7F, len(code)) + code
    expected = hpack_list(hpack.Decoder(), block)
    assert decode_huffman(code) == (None if expected is None else expected[0][1])


@given(st.binary(max_size=300))
def test_every_string_survives_huffman_code(text: bytes) -> None:
    assert decode_huffman(HUFFMAN.encode(text)) == text


def test_the_static_table_is_that_of_hpack() -> None:
    assert STATIC_TABLE == HeaderTable.STATIC_TABLE


@given(LISTS)
def test_encoded_headers_decode_here_and_with_hpack_and_do_not_change_its_table(headers: HeaderList) -> None:
    block = encode_plain(headers)
    decoder = hpack.Decoder()
    assert HeaderDecoder().decode(block) == hpack_list(decoder, block) == headers
    assert not decoder.header_table.dynamic_entries


@given(LISTS, st.data())
def test_an_incomplete_block_is_a_violation_or_a_shorter_list(headers: HeaderList, data: st.DataObject) -> None:
    block = encode_plain(headers)
    cut = our_list(HeaderDecoder(), block[: data.draw(st.integers(0, len(block)))])
    assert cut is None or cut == headers[: len(cut)]


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


@pytest.mark.parametrize(
    "block",
    [
        encode_plain([(b"x", bytes(MAX_HEADER_LIST_BYTES - 32))]),
        hpack.Encoder().encode([(b"x-bomb", b"0" * 4_000)]) + b"\xbe" * 20,
    ],
    ids=["large", "decodes to a large one"],
)
def test_a_list_past_the_limit_is_refused(block: bytes) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        HeaderDecoder().decode(bytes(block))
    assert refused.value.code == ENHANCE_YOUR_CALM


def test_a_list_at_the_limit_is_accepted() -> None:
    fits = [(b"x", bytes(MAX_HEADER_LIST_BYTES - 33))]
    assert HeaderDecoder().decode(encode_plain(fits)) == fits


def test_equal_lists_are_encoded_once() -> None:
    assert encode_headers(list(REQUEST)) is encode_headers(list(REQUEST))


@pytest.mark.parametrize(
    "headers",
    [[*REQUEST, (b"authorization", b"Bearer secret")], trailers(INTERNAL, "a path of a peer")],
    ids=["secret", "text of a peer"],
)
def test_neither_secrets_nor_texts_of_peers_are_kept(headers: HeaderList) -> None:
    header_blocks._encode.cache_clear()
    assert HeaderDecoder().decode(encode_headers(headers)) == headers
    assert header_blocks._encode.cache_info().currsize == 0


def test_a_small_header_table_is_announced_in_every_block() -> None:
    """A block may wait behind payload while others overtake it, so each must contain the announcement."""
    server = greeted_server(settings_frame([(frames.HEADER_TABLE_SIZE, 0)]), HEADERS)
    server.connection.sender.send_headers(server.stream(1), RESPONSE_HEADERS)
    server.connection.sender.finish(server.stream(1), trailers(OK, ""))
    for one in split(server.take()):
        decoder = hpack.Decoder()
        decoder.max_allowed_table_size = 0
        decoder.decode(one.payload)


METHOD, SCHEME, PATH = (b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/")


@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        (REQUEST, ""),
        ([METHOD, SCHEME, PATH], ""),
        ([METHOD, SCHEME, PATH, (b":authority", b"")], ""),
        ([METHOD, SCHEME, PATH, (b"te", b"trailers"), (b"x_y.z", b"\t\xff")], ""),
        ([SCHEME, PATH], "pseudo header missing"),
        ([METHOD, SCHEME], "pseudo header missing"),
        ([METHOD, SCHEME, PATH, PATH], "pseudo header misplaced, repeated or empty"),
        ([METHOD, SCHEME, (b"x", b""), PATH], "pseudo header misplaced, repeated or empty"),
        ([METHOD, SCHEME, (b":path", b"")], "pseudo header misplaced, repeated or empty"),
        ([METHOD, SCHEME, PATH, (b":status", b"200")], "unknown pseudo header"),
        ([METHOD, SCHEME, PATH, (b":", b"")], "unknown pseudo header"),
        ([METHOD, SCHEME, PATH, (b"te", b"gzip")], "header of an HTTP/1.1 connection"),
        ([METHOD, SCHEME, PATH, (b"connection", b"close")], "header of an HTTP/1.1 connection"),
        ([METHOD, SCHEME, PATH, (b"transfer-encoding", b"chunked")], "header of an HTTP/1.1 connection"),
        ([METHOD, SCHEME, PATH, (b"X-Id", b"")], "header name with capitals or invalid characters"),
        ([METHOD, SCHEME, PATH, (b"", b"")], "header name with capitals or invalid characters"),
        ([METHOD, SCHEME, PATH, (b"x y", b"")], "header name with capitals or invalid characters"),
        ([METHOD, SCHEME, PATH, (b"agentid", b"a\nb")], "header value with a line break"),
        ([METHOD, SCHEME, PATH, (b"agentid", b"a\0")], "header value with a line break"),
        ([METHOD, SCHEME, (b":path", b"/\r\nx")], "header value with a line break"),
    ],
)
def test_which_requests_are_well_formed(headers: HeaderList, fault: str) -> None:
    assert request_fault(headers) == fault


@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        (RESPONSE_HEADERS, ""),
        ([(b":status", b"103")], ""),
        ([], "no valid status"),
        ([(b"x", b"1"), (b":status", b"200")], "no valid status"),
        ([(b":status", b"20")], "no valid status"),
        ([(b":status", b"2x0")], "no valid status"),
        ([(b":status", b"200"), (b":status", b"200")], "pseudo header misplaced"),
        ([(b":status", b"200"), PATH], "pseudo header misplaced"),
        ([(b":status", b"200"), (b"Serverid", b"1")], "header name with capitals or invalid characters"),
    ],
)
def test_which_responses_are_well_formed(headers: HeaderList, fault: str) -> None:
    assert response_fault(headers) == fault


def test_trailers_have_no_pseudo_headers() -> None:
    assert trailers_fault(trailers(OK, "")) == ""
    assert trailers_fault([(b":status", b"200")]) == "pseudo header misplaced"


@pytest.mark.parametrize(
    ("values", "length"),
    [([], -1), ([b"0"], 0), ([b"17"], 17), ([b"-1"], -2), ([b""], -2), ([b"1", b"1"], -2), ([b"9" * 19], -2)],
)
def test_content_length_is_one_number_or_not_valid(values: list[bytes], length: int) -> None:
    assert content_length([(b"content-length", value) for value in values]) == length
