"""Header blocks of the plain kind (RFC 7541): static entries and literals, no Huffman code, no dynamic table.

All that we send is of this kind, and so is all that our own ends receive: the `hpack` package is loaded only for a peer
that uses more. It costs each process 0.6 MB and 4 ms of its start (decisions/0017).
"""

from typing import Final

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
"""What every field counts towards the size of a list, besides its bytes: RFC 9113 section 6.5.2."""
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


def encode(headers: HeaderList) -> bytes:
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
        """-1 for what is cut short or longer than anybody needs."""
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
            return None  # an entry for the dynamic table, or a new size of it
        index = self.integer(_LITERAL_PREFIX)
        if index < 0 or index > len(STATIC_TABLE):
            return None
        name = STATIC_TABLE[index - 1][0] if index else self.string()
        if name is None:
            return None
        value = self.string()
        return None if value is None else (name, value)


def decode(block: bytes, most_bytes: int) -> HeaderList | None:
    """None for a block that is of another kind, broken, or larger than that when unfolded: for the real decoder."""
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
