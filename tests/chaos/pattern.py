"""The bytes that tunnels carry in chaos runs, and a check of them.

Every tunnel has its own stream for each direction. A block starts with the numbers of its tunnel and itself, and the
rest is a hash of these. So a byte that is lost, repeated, moved or from another tunnel is detected.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from hashlib import shake_128
from typing import Final

BLOCK_BYTES: Final = 4096
_HEAD: Final = struct.Struct(">QBQ")
# How far wrong bytes are searched for around their position: more than any window or buffer on the route.
_SEARCH_BYTES: Final = 8 * 1024 * 1024
_SAMPLE_BYTES: Final = 32


class Direction(IntEnum):
    UP = 1
    """From the client to the endpoint."""
    DOWN = 2


class Violation(Exception):
    """Wrong bytes; the text describes them and their position."""


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
    """Checks one stream from its start and counts the correct bytes."""

    def __init__(self, tunnel: int, direction: Direction, size: int) -> None:
        self.offset = 0
        self._tunnel, self._direction, self._size = tunnel, direction, size

    @property
    def is_whole(self) -> bool:
        return self.offset == self._size

    def take(self, octets: bytes) -> None:
        """Check the next bytes. Raises Violation: they are not what was sent."""
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
        """Describe where wrong bytes come from. Short pieces are not searched for: they may match by chance."""
        sample = stray[:_SAMPLE_BYTES]
        start = max(0, place - _SEARCH_BYTES)
        around = stretch(self._tunnel, self._direction, start, min(self._size, place + _SEARCH_BYTES) - start)
        found = around.find(sample) if len(sample) == _SAMPLE_BYTES else -1
        if found < 0:
            return f"bytes that are not of this stream: {sample.hex()}"
        if start + found > place:
            return f"{start + found - place} bytes are lost"
        return f"bytes of position {start + found} again"
