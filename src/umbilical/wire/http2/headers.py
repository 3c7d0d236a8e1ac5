"""Encodes and decodes header blocks (HPACK, RFC 7541), with limits.

We send only plain blocks: static entries and literals, without Huffman code and dynamic table. The `hpack` package is
loaded only for a peer that uses more, because it costs each process 0.6 MB and 4 ms at start (decisions/0017).
"""

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM

if TYPE_CHECKING:
    from hpack import Decoder

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
_NEVER_INDEXED: Final = 0x10
_LITERAL_PREFIX: Final = 0x0F
_STRING_PREFIX: Final = 0x7F
_HUFFMAN: Final = 0x80
_INDEXED: Final = 0x80


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


class _Reader:
    def __init__(self, block: bytes) -> None:
        self.block: Final = block
        self.position = 0

    def integer(self, prefix: int) -> int:
        """-1 if it is incomplete or too long."""
        block, position = self.block, self.position
        value = block[position] & prefix
        position += 1
        shift = 0
        while value >= prefix and position < len(block):
            byte = block[position]
            position += 1
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.position = position
                return value
            if shift > 21:
                return -1
        self.position = position
        return value if value < prefix else -1

    def string(self) -> bytes | None:
        block = self.block
        if self.position >= len(block) or block[self.position] & _HUFFMAN:
            return None
        length = self.integer(_STRING_PREFIX)
        end = self.position + length
        if length < 0 or end > len(block):
            return None
        text = block[self.position : end]
        self.position = end
        return text

    def field(self) -> tuple[bytes, bytes] | None:
        first = self.block[self.position]
        if first & _INDEXED:
            index = self.integer(0x7F)
            return STATIC_TABLE[index - 1] if 0 < index <= len(STATIC_TABLE) else None
        if first & 0x60:
            return None  # adds an entry to the dynamic table or changes its size
        index = self.integer(_LITERAL_PREFIX)
        if index < 0 or index > len(STATIC_TABLE):
            return None
        name = STATIC_TABLE[index - 1][0] if index else self.string()
        if name is None:
            return None
        value = self.string()
        return None if value is None else (name, value)


def decode_plain(block: bytes, most_bytes: int) -> HeaderList | None:
    """None if the block is not plain, is malformed or too large: then the `hpack` decoder must read it."""
    reader = _Reader(block)
    headers: HeaderList = []
    size = 0
    while reader.position < len(block):
        entry = reader.field()
        if entry is None:
            return None
        size += len(entry[0]) + len(entry[1]) + _FIELD_OVERHEAD_BYTES
        if size > most_bytes:
            return None
        headers.append(entry)
    return headers


MAX_HEADER_LIST_BYTES: Final = 65_536
"""Security limit for one header list. A service-account token has about 1.5 KiB."""
_REMEMBERED_BLOCKS: Final = 256
_REMEMBERED_BLOCK_BYTES: Final = 1024
_REMEMBERED_BY_CONNECTION: Final = 16


@lru_cache(maxsize=1024)
def _encode(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return encode_plain(list(headers))


def encode_headers(headers: HeaderList) -> bytes:
    if _has_secret(headers):  # a secret must not stay in the cache
        return encode_plain(headers)
    return _encode(tuple(headers))


class HeaderDecoder:
    """Decodes the header blocks of one connection, with two caches.

    The first block depends on nothing before it, and kube-apiserver opens a connection per tunnel with the same block
    each time: first blocks are cached for all connections, and a decoder is created only for a second block. Later
    blocks are cached until the dynamic table changes, because all streams of a connection have the same headers.
    """

    _first_blocks: ClassVar[dict[bytes, HeaderList]] = {}

    def __init__(self) -> None:
        self._decoder: Decoder | None = None
        self._replay: bytes | None = None
        self._known: Final[dict[bytes, HeaderList]] = {}
        """Blocks decoded with the current dynamic table."""

    def decode(self, block: bytes) -> HeaderList:
        # Plain blocks neither use nor change the dynamic table, so the `hpack` decoder need not read them.
        plain = decode_plain(block, MAX_HEADER_LIST_BYTES)
        if plain is not None:
            return plain
        if self._decoder is None and self._replay is None:
            return self._decode_first(block)
        return self._decode_next(block)

    def _decode_first(self, block: bytes) -> HeaderList:
        known = HeaderDecoder._first_blocks.get(block)
        if known is None:
            known = self._decode_next(block)
            if len(block) <= _REMEMBERED_BLOCK_BYTES and not _has_secret(known):
                if len(HeaderDecoder._first_blocks) >= _REMEMBERED_BLOCKS:
                    HeaderDecoder._first_blocks.clear()
                HeaderDecoder._first_blocks[block] = known.copy()
            return known
        self._replay = block
        return known.copy()

    def _decode_next(self, block: bytes) -> HeaderList:
        known = self._known.get(block)
        if known is not None:
            return known.copy()
        decoder = self._decoder
        if decoder is None:
            from hpack import Decoder

            decoder = self._decoder = Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)
            if self._replay is not None:
                _run(decoder, self._replay)
                self._replay = None
        before = _table_state(decoder)
        headers = _run(decoder, block)
        if _table_state(decoder) != before:
            self._known.clear()
        elif len(block) <= _REMEMBERED_BLOCK_BYTES and not _has_secret(headers):
            if len(self._known) >= _REMEMBERED_BY_CONNECTION:
                self._known.clear()
            self._known[block] = headers.copy()
        return headers


def _run(decoder: "Decoder", block: bytes) -> HeaderList:
    from hpack import HPACKError

    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except HPACKError as error:
        too_large = type(error).__name__ == "OversizedHeaderListError"
        code = ENHANCE_YOUR_CALM if too_large else COMPRESSION_ERROR
        # This text goes to the peer; that of the error may quote header values or memory addresses.
        raise ProtocolViolation(code, f"header block: {type(error).__name__}") from error


def _table_state(decoder: "Decoder") -> tuple[int, int, int]:
    """Changes with every entry that is added or removed: a new entry is a new object at the front."""
    table = decoder.header_table
    entries = table.dynamic_entries
    return len(entries), id(entries[0]) if entries else 0, table.maxsize


def _has_secret(headers: HeaderList) -> bool:
    return any(name.lower() == b"authorization" for name, _ in headers)


def has_capitals(headers: HeaderList) -> bool:
    """RFC 9113 section 8.2.1 requires lower-case names; other names would not match in any comparison."""
    return any(name != name.lower() for name, _ in headers)
