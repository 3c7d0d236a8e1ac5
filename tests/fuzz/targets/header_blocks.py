"""The header blocks of a connection, read by our decoder and by that of `hpack`, which refuses no more.

Input: how (bit 0: steps), then blocks, each behind a byte with its length; or steps of one byte that build blocks,
since changed bytes of a block are mostly refused before they reach the table.
"""

from collections.abc import Iterator
from typing import Final

from hpack import Decoder, HPACKError
from tests.fuzz.choices import Choices

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2.headers import MAX_HEADER_LIST_BYTES, HeaderDecoder, HeaderList

NEWEST_ENTRY: Final = b"\xbe"
"""A block that names it: RFC 7541 section 2.3.3."""
STRICTER: Final = ("too large",)
"""We refuse integers that no honest peer sends before their sum is known."""
STEPS: Final = 1
END_BLOCK, INSERT, REFER, RESIZE = range(4)
SIZES: Final = (b"\x20", b"\x3f\x09", b"\x3f\x21", b"\x3f\x61", b"\x3f\xe1\x1f")
"""Updates of the table's size: to 0, 40 (one entry), 64, 128 and 4,096 bytes."""


def target(data: bytes) -> None:
    choices = Choices(data)
    blocks = _built(choices) if choices.number() & STEPS else _given(choices)
    ours, theirs = HeaderDecoder(), Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)
    for block in blocks:
        if not _agree(ours, theirs, block):
            return
        if theirs.header_table.dynamic_entries:
            _agree(ours, theirs, NEWEST_ENTRY)


def _given(choices: Choices) -> Iterator[bytes]:
    while not choices.is_empty():
        yield choices.counted()


def _built(choices: Choices) -> Iterator[bytes]:
    """Each step is a kind (two bits) and a number: of a letter, an entry or a size."""
    block = b""
    while not choices.is_empty():
        step = choices.number()
        kind, number = step & 3, step >> 2
        if kind == INSERT:
            letter = bytes((0x61 + number % 26,))
            block += b"\x40\x01" + letter + b"\x01" + letter
        elif kind == REFER:
            block += bytes((NEWEST_ENTRY[0] + number % 3,))
        elif kind == RESIZE and not block:
            block = SIZES[number % len(SIZES)]
        elif kind == END_BLOCK:
            yield block
            block = b""
    yield block


def _agree(ours: HeaderDecoder, theirs: Decoder, block: bytes) -> bool:
    """Compare both; False after a refusal, which ends the connection."""
    expected = _theirs(theirs, block)
    try:
        headers = ours.decode(block)
    except ProtocolViolation as violation:
        fault = violation
    else:
        assert headers == expected, "decoded to other fields"
        return True
    assert expected is None or any(reason in fault.message for reason in STRICTER), f"we refused: {fault.message}"
    return False


def _theirs(decoder: Decoder, block: bytes) -> HeaderList | None:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except HPACKError:
        return None
