"""How a target reads its input: a few numbers from the front, then bytes, whole or cut into pieces."""

from collections.abc import Iterator


class Choices:
    """Takes an input apart from its front; an input that is used up gives zeros and empty bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def is_empty(self) -> bool:
        return self._position >= len(self._data)

    def number(self) -> int:
        """Return the next byte."""
        return int.from_bytes(self.octets(1))

    def octets(self, count: int) -> bytes:
        taken = self._data[self._position : self._position + count]
        self._position += count
        return taken

    def counted(self) -> bytes:
        """Return the next bytes, as many as the byte before them tells."""
        return self.octets(self.number())

    def rest(self) -> bytes:
        return self.octets(len(self._data))


def pieces(octets: bytes, largest: int) -> Iterator[bytes]:
    """Cut bytes into pieces of 1 to `largest`, in sizes that depend on nothing else."""
    state = position = 0
    while position < len(octets):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        end = position + 1 + (state >> 16) % max(largest, 1)
        yield octets[position:end]
        position = end
