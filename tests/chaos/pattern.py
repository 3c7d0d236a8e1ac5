"""What tunnels carry in the storm: bytes that say whose they are and where they belong, and who checks them.

Every tunnel has a stream of its own for each direction. Its blocks begin with the tunnel's number and their own, and
the rest follows from those by a hash: a byte that was lost, doubled, moved or crossed from another tunnel shows.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from hashlib import shake_128
from typing import Final

BLOCK_BYTES: Final = 4096
_HEAD: Final = struct.Struct(">QBQ")
# How far around its place a stray piece is looked for: more than any window or buffer on the way holds.
_SEARCH_BYTES: Final = 8 * 1024 * 1024
_SAMPLE_BYTES: Final = 32


class Direction(IntEnum):
    UP = 1
    """From the client to the endpoint."""
    DOWN = 2


class Violation(Exception):
    """A tunnel broke its promise; the text says which, and where."""


def stretch(tunnel: int, direction: Direction, offset: int, size: int) -> bytes:
    """Return a piece of a tunnel's stream."""
    first, last = offset // BLOCK_BYTES, (offset + size - 1) // BLOCK_BYTES
    blocks = b"".join(_block(tunnel, direction, number) for number in range(first, last + 1))
    start = offset - first * BLOCK_BYTES
    return blocks[start : start + size]


@lru_cache(maxsize=64)
def _block(tunnel: int, direction: Direction, number: int) -> bytes:
    head = _HEAD.pack(tunnel, direction, number)
    return head + shake_128(head).digest(BLOCK_BYTES - len(head))


class Check:
    """Reads one stream from its beginning and counts what was right."""

    def __init__(self, tunnel: int, direction: Direction, size: int) -> None:
        self.offset = 0
        self._tunnel, self._direction, self._size = tunnel, direction, size

    @property
    def is_whole(self) -> bool:
        return self.offset == self._size

    def take(self, octets: bytes) -> None:
        """Take what came next.

        Raises:
            Violation: it is not what was sent.
        """
        if self.offset + len(octets) > self._size:
            extra = self.offset + len(octets) - self._size
            raise Violation(f"tunnel {self._tunnel:x}: {extra} bytes more than the {self._size} that were sent")
        wanted = stretch(self._tunnel, self._direction, self.offset, len(octets)) if octets else b""
        if octets != wanted:
            raise self._describe(octets, wanted)
        self.offset += len(octets)

    def _describe(self, octets: bytes, wanted: bytes) -> Violation:
        wrong = next(index for index, pair in enumerate(zip(octets, wanted, strict=True)) if pair[0] != pair[1])
        place = self.offset + wrong
        return Violation(f"tunnel {self._tunnel:x} at byte {place}: {self._origin(octets[wrong:], place)}")

    def _origin(self, stray: bytes, place: int) -> str:
        """Say where wrong bytes come from. Short pieces tell nothing for sure, so they are not looked for."""
        sample = stray[:_SAMPLE_BYTES]
        start = max(0, place - _SEARCH_BYTES)
        around = stretch(self._tunnel, self._direction, start, min(self._size, place + _SEARCH_BYTES) - start)
        found = around.find(sample) if len(sample) == _SAMPLE_BYTES else -1
        if found < 0:
            return f"bytes that are not of this stream: {sample.hex()}"
        if start + found > place:
            return f"{start + found - place} bytes are lost"
        return f"bytes of place {start + found} again"
