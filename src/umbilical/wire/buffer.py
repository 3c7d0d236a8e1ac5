"""Memory that is filled and read in place: blocks of one size, lent to whoever has bytes under way right now.

An idle connection holds no block, so a thousand of them cost nothing.
"""

from typing import Final


class Block:
    """One bytearray and the view on it; never resized, so slices of the view stay valid."""

    def __init__(self, size: int) -> None:
        self.data: Final = bytearray(size)
        self.view: Final = memoryview(self.data)
        self.size: Final = size


class BlockPool:
    """Hands out blocks and keeps a few for the next borrower."""

    def __init__(self, block_bytes: int, kept_blocks: int) -> None:
        self.block_bytes: Final = block_bytes
        self._kept_blocks: Final = kept_blocks
        self._free: list[Block] = []

    def take(self) -> Block:
        if self._free:
            return self._free.pop()
        return Block(self.block_bytes)

    def give(self, block: Block) -> None:
        """Take a block back; the borrower must not touch it, nor any slice of it, again."""
        if len(self._free) < self._kept_blocks:
            self._free.append(block)
