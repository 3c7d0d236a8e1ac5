"""Header lists to header blocks and back, with limits; blocks that are not plain through the `hpack` package.

Encoding never touches the dynamic table, so equal lists give equal bytes and are encoded once. Decoding the first
block of a connection depends on nothing but its bytes, and clients such as kube-apiserver open a connection per
tunnel with the same block each time: those are remembered, and a decoder is made only for a second block. Later blocks
are remembered by their connection, as long as its dynamic table stays as it is: each tunnel's stream brings the same.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import plain_headers
from umbilical.wire.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM

if TYPE_CHECKING:
    from hpack import Decoder

HeaderList = plain_headers.HeaderList

MAX_HEADER_LIST_BYTES: Final = 65_536
"""Security limit: what a peer may make us hold for one header list. A service-account token is about 1.5 KiB."""
_REMEMBERED_BLOCKS: Final = 256
_REMEMBERED_BLOCK_BYTES: Final = 1024
_REMEMBERED_BY_CONNECTION: Final = 16


@lru_cache(maxsize=1024)
def _encode(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return plain_headers.encode(list(headers))


def encode_headers(headers: HeaderList) -> bytes:
    if _has_secret(headers):  # must not stay behind in a cache
        return plain_headers.encode(headers)
    return _encode(tuple(headers))


class HeaderDecoder:
    """The receiving half of one connection's header compression."""

    _first_blocks: ClassVar[dict[bytes, HeaderList]] = {}

    def __init__(self) -> None:
        self._decoder: Decoder | None = None
        self._replay: bytes | None = None
        self._known: Final[dict[bytes, HeaderList]] = {}
        """What blocks mean with the dynamic table of now."""

    def decode(self, block: bytes) -> HeaderList:
        # Plain blocks neither use nor change the dynamic table, so the real decoder need not see them.
        plain = plain_headers.decode(block, MAX_HEADER_LIST_BYTES)
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
        # The error's own text may quote header values or addresses in our memory, and this goes to the peer.
        raise ProtocolViolation(code, f"header block: {type(error).__name__}") from error


def _table_state(decoder: "Decoder") -> tuple[int, int, int]:
    """Changes with every entry that comes or goes: a new one is a new object at the front."""
    table = decoder.header_table
    entries = table.dynamic_entries
    return len(entries), id(entries[0]) if entries else 0, table.maxsize


def _has_secret(headers: HeaderList) -> bool:
    return any(name.lower() == b"authorization" for name, _ in headers)


def has_capitals(headers: HeaderList) -> bool:
    """Names are lower-case by law (RFC 9113 section 8.2.1); others would slip past every comparison."""
    return any(name != name.lower() for name, _ in headers)
