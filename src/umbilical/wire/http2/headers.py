"""Encodes and decodes header blocks (HPACK, RFC 7541), with limits.

We send only plain blocks: static entries and literals, without Huffman code and dynamic table; peers may use all of it.
Not the `hpack` package: see decisions/0029.
"""

from functools import lru_cache
from typing import Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM
from umbilical.wire.http2.huffman import decode_huffman

HeaderList = list[tuple[bytes, bytes]]

# RFC 7541 appendix A, from index 1 on.
STATIC_TABLE: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""), (b"max-forwards", b""),
    (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""), (b"referer", b""), (b"refresh", b""),
    (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""), (b"strict-transport-security", b""),
    (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""), (b"via", b""), (b"www-authenticate", b""),
)  # fmt: skip
_FIELD_OVERHEAD_BYTES: Final = 32
"""Added to the bytes of each field for the size of a list: RFC 9113 section 6.5.2."""
_INDEXED: Final = 0x80
_ADDED: Final = 0x40
"""A literal that becomes an entry of the dynamic table."""
_TABLE_SIZE: Final = 0x20
_NEVER_INDEXED: Final = 0x10
_LITERAL_PREFIX: Final = 0x0F
_STRING_PREFIX: Final = 0x7F
_HUFFMAN: Final = 0x80
_MAX_INTEGER_SHIFT: Final = 21
"""Of the last byte of an integer: larger ones than 28 bits are refused."""


def _first_indexes() -> dict[bytes, int]:
    indexes: dict[bytes, int] = {}
    for position, entry in enumerate(STATIC_TABLE):
        indexes.setdefault(entry[0], position + 1)
    return indexes


_NAMES: Final = _first_indexes()
_FIELDS: Final = {entry: position + 1 for position, entry in enumerate(STATIC_TABLE) if entry[1]}


def encode_plain(headers: HeaderList) -> bytes:
    block = bytearray()
    for name, value in headers:
        whole = _FIELDS.get((name, value))
        if whole is not None:
            block.append(_INDEXED | whole)
            continue
        index = _NAMES.get(name, 0)
        _put_integer(block, _NEVER_INDEXED, _LITERAL_PREFIX, index)
        if index == 0:
            _put_integer(block, 0, _STRING_PREFIX, len(name))
            block += name
        _put_integer(block, 0, _STRING_PREFIX, len(value))
        block += value
    return bytes(block)


def _put_integer(block: bytearray, flags: int, prefix: int, value: int) -> None:
    """RFC 7541 section 5.1."""
    if value < prefix:
        block.append(flags | value)
        return
    block.append(flags | prefix)
    value -= prefix
    while value >= 0x80:
        block.append(0x80 | value & 0x7F)
        value >>= 7
    block.append(value)


MAX_HEADER_LIST_BYTES: Final = 65_536
"""Security limit for one header list. A service-account token has about 1.5 KiB."""
MAX_TABLE_BYTES: Final = 4_096
"""Of the dynamic table: the default of SETTINGS_HEADER_TABLE_SIZE, which we do not change."""
_UNCACHED_NAMES: Final = frozenset((b"authorization", b"grpc-message"))
"""A secret, and texts that peers can choose: neither may stay in the cache."""


@lru_cache(maxsize=64)
def _encode(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return encode_plain(list(headers))


def encode_headers(headers: HeaderList) -> bytes:
    """All other header lists are the same few for all streams of this process."""
    for name, _ in headers:
        if name in _UNCACHED_NAMES:
            return encode_plain(headers)
    return _encode(tuple(headers))


class HeaderDecoder:
    """Decodes the header blocks of one connection. After a violation it must not be used again."""

    def __init__(self) -> None:
        self._entries: Final[HeaderList] = []
        """The dynamic table, newest entry last."""
        self._table_bytes = 0
        self._table_limit = MAX_TABLE_BYTES
        self._block = b""
        self._position = 0

    def decode(self, block: bytes) -> HeaderList:
        self._block = block
        self._position = 0
        while self._position < len(block) and block[self._position] & 0xE0 == _TABLE_SIZE:
            self._resize(self._integer(0x1F))
        headers: HeaderList = []
        size = 0
        while self._position < len(block):
            field = self._field(block[self._position])
            size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD_BYTES
            if size > MAX_HEADER_LIST_BYTES:
                raise ProtocolViolation(ENHANCE_YOUR_CALM, f"header list of more than {MAX_HEADER_LIST_BYTES} bytes")
            headers.append(field)
        return headers

    def _field(self, first: int) -> tuple[bytes, bytes]:
        if first & _INDEXED:
            return self._entry(self._integer(0x7F))
        if first & _ADDED:
            field = self._literal(self._integer(0x3F))
            self._add(field)
            return field
        if first & _TABLE_SIZE:
            raise _malformed("table size after a field")
        return self._literal(self._integer(_LITERAL_PREFIX))

    def _literal(self, index: int) -> tuple[bytes, bytes]:
        name = self._entry(index)[0] if index else self._string()
        return name, self._string()

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= len(STATIC_TABLE):
            return STATIC_TABLE[index - 1]
        newest_first = index - len(STATIC_TABLE)
        if 0 < newest_first <= len(self._entries):
            return self._entries[-newest_first]
        raise _malformed("index out of range")

    def _add(self, field: tuple[bytes, bytes]) -> None:
        self._entries.append(field)
        self._table_bytes += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD_BYTES
        self._evict()

    def _resize(self, limit: int) -> None:
        if limit > MAX_TABLE_BYTES:
            raise _malformed("table size over the limit")
        self._table_limit = limit
        self._evict()

    def _evict(self) -> None:
        """Remove the oldest entries: RFC 7541 sections 4.3 and 4.4."""
        entries = self._entries
        count = 0
        while self._table_bytes > self._table_limit:
            name, value = entries[count]
            self._table_bytes -= len(name) + len(value) + _FIELD_OVERHEAD_BYTES
            count += 1
        if count:
            del entries[:count]

    def _integer(self, prefix: int) -> int:
        """RFC 7541 section 5.1; the position is inside the block."""
        block, position = self._block, self._position
        value = block[position] & prefix
        position += 1
        shift = 0
        more = value == prefix
        while more:
            if position == len(block) or shift > _MAX_INTEGER_SHIFT:
                raise _malformed("integer cut off or too large")
            byte = block[position]
            position += 1
            value += (byte & 0x7F) << shift
            shift += 7
            more = byte >= 0x80
        self._position = position
        return value

    def _string(self) -> bytes:
        block = self._block
        if self._position == len(block):
            raise _malformed("field cut off")
        is_huffman = block[self._position] & _HUFFMAN != 0
        length = self._integer(_STRING_PREFIX)
        start, end = self._position, self._position + length
        if end > len(block):
            raise _malformed("string cut off")
        self._position = end
        if not is_huffman:
            return block[start:end]
        text = decode_huffman(block[start:end])
        if text is None:
            raise _malformed("invalid Huffman code")
        return text


def _malformed(text: str) -> ProtocolViolation:
    return ProtocolViolation(COMPRESSION_ERROR, f"header block: {text}")
