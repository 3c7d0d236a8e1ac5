"""The plain kind of header blocks, held against the `hpack` package as the oracle."""

import hpack
import pytest
from hpack.table import HeaderTable
from hypothesis import example, given
from hypothesis import strategies as st

from umbilical.wire.http2 import plain_headers
from umbilical.wire.http2.plain_headers import STATIC_TABLE, HeaderList

NAMES = st.one_of(st.sampled_from([name for name, _ in STATIC_TABLE]), st.binary(min_size=1, max_size=300))
VALUES = st.one_of(st.sampled_from([value for _, value in STATIC_TABLE]), st.binary(max_size=300))
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=12)
LARGE = 1 << 20


def judged(block: bytes) -> tuple[HeaderList | None, bool]:
    """What the oracle reads, and whether its table is as it was."""
    decoder = hpack.Decoder(max_header_list_size=LARGE)
    try:
        headers = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.HPACKError:
        return None, False
    untouched = not decoder.header_table.dynamic_entries and decoder.header_table.maxsize == HeaderTable.DEFAULT_SIZE
    return headers, untouched


def test_the_static_table_is_the_oracles() -> None:
    assert STATIC_TABLE == HeaderTable.STATIC_TABLE


@given(LISTS)
def test_what_is_encoded_comes_back_here_and_at_the_oracle_and_leaves_its_table_alone(headers: HeaderList) -> None:
    block = plain_headers.encode(headers)
    assert plain_headers.decode(block, LARGE) == headers
    assert judged(block) == (headers, True)


@given(st.binary(max_size=60))
@example(b"\x00")
@example(b"\x0f")
@example(b"\x10\x7f\xff\xff\xff\xff\xff\x01")
@example(b"\x80")
@example(b"\xbe")
@example(b"\xff\x00")
def test_whatever_is_read_here_the_oracle_reads_alike(block: bytes) -> None:
    ours = plain_headers.decode(block, LARGE)
    if ours is not None:
        assert judged(block) == (ours, True)


@given(LISTS, st.data())
def test_a_block_that_is_cut_short_is_left_to_the_real_decoder(headers: HeaderList, data: st.DataObject) -> None:
    block = plain_headers.encode(headers)
    cut = block[: data.draw(st.integers(0, len(block)))]
    ours = plain_headers.decode(cut, LARGE)
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
def test_other_kinds_are_left_to_the_real_decoder(block: bytes) -> None:
    assert plain_headers.decode(bytes(block), LARGE) is None


def test_a_list_that_is_too_large_is_left_to_the_real_decoder_which_refuses_it() -> None:
    block = plain_headers.encode([(b"name", bytes(100))])
    assert plain_headers.decode(block, 136) is not None
    assert plain_headers.decode(block, 135) is None
