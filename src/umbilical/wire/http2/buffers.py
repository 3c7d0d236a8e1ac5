"""Memory that is filled and read in place: blocks of one size, and one connection's inbox and outbox.

Blocks are lent to whoever has bytes under way right now: an idle connection holds none, so a thousand of them cost
nothing.
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


class Inbox:
    """Received bytes that are parsed in place. Several connections may share one block: one thread reads one at a time,
    and each keeps only its unfinished rest.
    """

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


_CONTROL: Final = 1
_DATA: Final = 2


class Outbox:
    """What waits to be sent on one connection, in two lanes that meet only at frame boundaries.

    The control lane (settings, pings, credit, dials) goes first; once the data lane has begun it goes behind the frames
    that are there and still ahead of all that come later: DATA must not overtake the DIAL_RSP that announces it.
    The data lane is a block that payload is received into directly.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool: Final = pool
        self._control = bytearray()
        self._control_now = b""
        """The part of the control lane that is being sent."""
        self._control_sent = 0
        self._block: Block | None = None
        self._start = 0
        self._end = 0
        self._fence = 0
        """Frame boundary of the data lane where the control lane goes in."""
        self._lane = 0

    def add_control(self, frames: bytes) -> None:
        if not self._control and self._start != self._fence:
            self._fence = self._end
        self._control += frames

    def add_ordered(self, frames: bytes) -> bool:
        """Append behind the payload that is already there; False when there is no room."""
        if self._end == self._start:
            self.add_control(frames)
            return True
        block = self._block
        assert block is not None
        end = self._end + len(frames)
        if end > block.size:
            return False
        block.data[self._end : end] = frames
        self._end = end
        return True

    def control_bytes(self) -> int:
        return len(self._control) + len(self._control_now) - self._control_sent

    def data_bytes(self) -> int:
        return self._end - self._start

    def queued_bytes(self) -> int:
        return self.data_bytes() + self.control_bytes()

    def is_empty(self) -> bool:
        return self._end == self._start and not self._control and not self._control_now

    def free_bytes(self) -> int:
        return self._pool.block_bytes - self._end

    def room(self, gap: int, size: int) -> memoryview:
        """Where a payload of up to `size` bytes may be written, behind a gap for its prefix."""
        block = self._block
        if block is None:
            block = self._block = self._pool.take()
        start = self._end + gap
        return block.view[start : start + size]

    def commit(self, prefix: bytes, size: int) -> None:
        """A payload of `size` bytes stands behind the gap: put its prefix there and let both go."""
        block = self._block
        assert block is not None
        start = self._end + len(prefix)
        block.data[self._end : start] = prefix
        self._end = start + size

    def pending(self) -> memoryview | None:
        """The next bytes to send, or None."""
        if self._control_now:
            self._lane = _CONTROL
            return memoryview(self._control_now)[self._control_sent :]
        if self._control and self._start == self._fence:
            self._control_now = bytes(self._control)
            self._control.clear()
            self._lane = _CONTROL
            return memoryview(self._control_now)
        if self._end > self._start:
            self._lane = _DATA
            block = self._block
            assert block is not None
            return block.view[self._start : self._fence if self._control else self._end]
        self._return_block()  # room was asked for and not used
        return None

    def sent(self, count: int) -> None:
        """So many bytes of what `pending` returned are gone."""
        if self._lane == _CONTROL:
            self._control_sent += count
            if self._control_sent == len(self._control_now):
                self._control_now = b""
                self._control_sent = 0
            return
        self._start += count
        if self._start == self._end:
            self._start = self._end = self._fence = 0
            self._return_block()

    def release(self) -> None:
        """The connection is over: nothing will be sent any more."""
        self._control.clear()
        self._control_now = b""
        self._control_sent = 0
        self._start = self._end = self._fence = 0
        self._return_block()

    def _return_block(self) -> None:
        block = self._block
        if block is not None:
            self._block = None
            self._pool.give(block)
