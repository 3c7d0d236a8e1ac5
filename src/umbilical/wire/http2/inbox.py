"""Received bytes that are parsed in place; several connections may share one block, since one thread reads one at a
time and each keeps only its unfinished rest.
"""

from typing import Final

from umbilical.wire.buffer import Block


class Inbox:
    def __init__(self, block: Block, shared: bool) -> None:
        self.data: Final = block.data
        self.view: Final = block.view
        self.start = 0
        self.end = 0
        self._size: Final = block.size
        self._shared: Final = shared
        self._rest = b""

    def room(self) -> memoryview:
        """Where the next bytes go. For a shared block the caller must `settle` before another connection reads."""
        if self._rest:
            self.end = len(self._rest)
            self.start = 0
            self.data[0 : self.end] = self._rest
            self._rest = b""
        elif self.start == self.end:
            self.start = self.end = 0
        elif self.start > 0 and self._size - self.end < self._size >> 1:
            left = self.end - self.start
            self.view[0:left] = self.view[self.start : self.end]
            self.start, self.end = 0, left
        return self.view[self.end :]

    def settle(self) -> None:
        """All complete frames are consumed: keep only the unfinished rest of a shared block."""
        if self._shared:
            self._rest = bytes(self.view[self.start : self.end])
            self.start = self.end = 0
