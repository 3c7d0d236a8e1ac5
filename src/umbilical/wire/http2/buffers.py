"""Memory that is filled and read in place: blocks of equal size, and the inbox and outbox of a connection.

A connection borrows an outgoing block only while it has payload to send: an idle one holds none.
"""

from typing import Final


class Block:
    """A bytearray and a view of it. It is never resized, so slices of the view stay valid."""

    def __init__(self, size: int) -> None:
        self.data: Final = bytearray(size)
        self.view: Final = memoryview(self.data)
        self.size: Final = size


class BlockPool:
    """Lends blocks and keeps a few free ones.

    `small` lends smaller ones for connections without bulk: a large block costs 100 us when none is kept, and one turn
    may have small payloads for hundreds of connections.
    """

    def __init__(self, block_bytes: int, kept_blocks: int, small: "BlockPool | None" = None) -> None:
        self.block_bytes: Final = block_bytes
        self.small: Final = small
        self._kept_blocks: Final = kept_blocks
        self._free: list[Block] = []

    def take(self) -> Block:
        if self._free:
            return self._free.pop()
        return Block(self.block_bytes)

    def give(self, block: Block) -> None:
        """Take a block back; the borrower must not use it or a slice of it again."""
        if len(self._free) < self._kept_blocks:
            self._free.append(block)


BULK_REST_BYTES: Final = 4 * 1024
"""An incomplete frame of more than this is bulk."""


class Inbox:
    """Received bytes, parsed in place. Several connections of one thread may share a block: each reads, parses and then
    keeps only its incomplete last frame. One that `may_own` gets a block of its own at its first bulk, which has long
    incomplete frames (measured: copying them costs a download 10 %).
    """

    def __init__(self, block: Block, shared: bool, may_own: bool = False) -> None:
        self.data = block.data
        self.view = block.view
        self.start = 0
        self.end = 0
        self._size: Final = block.size
        self._shared = shared
        self._may_own: Final = may_own
        self._rest = b""

    def room(self) -> memoryview:
        """Memory for the next bytes. With a shared block, call `settle` before another connection reads."""
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
        """After all complete frames: copy the incomplete last one out of a shared block."""
        if self._shared:
            if self._may_own and self.end - self.start > BULK_REST_BYTES:
                own = Block(self._size)
                own.data[self.start : self.end] = self.data[self.start : self.end]
                self.data, self.view, self._shared = own.data, own.view, False
                return
            self._rest = bytes(self.view[self.start : self.end])
            self.start = self.end = 0


_CONTROL: Final = 1
_DATA: Final = 2


class Outbox:
    """Bytes to send on one connection, in two lanes that switch only at frame boundaries.

    The control lane (settings, pings, credit, dials) goes first. Once the data lane is being sent, control frames go
    behind the data frames that are queued and ahead of all later ones: DATA must not overtake its DIAL_RSP.
    The data lane is a block into which payload is received directly.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool: Final = pool
        self._control = bytearray()
        self._control_now = b""
        """Part of the control lane that is being sent."""
        self._control_sent = 0
        self._block: Block | None = None
        self._has_bulk = pool.small is None
        """The last block was filled further than a small one should be."""
        self._start = 0
        self._end = 0
        self._fence = 0
        """Frame boundary of the data lane at which the control lane is sent."""
        self._lane = 0

    def add_control(self, frames: bytes) -> None:
        if not self._control and self._start != self._fence:
            self._fence = self._end
        self._control += frames

    def add_ordered(self, frames: bytes) -> bool:
        """Append behind the queued payload; False if there is no room."""
        if self._end == self._start:
            self.add_control(frames)
            return True
        block = self._block
        assert block is not None
        end = self._end + len(frames)
        if end > block.size:
            if end > self._pool.block_bytes:
                return False
            block = self._enlarged(block)
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
        """Memory for a payload of up to `size` bytes, behind a gap for its prefix."""
        start = self._end + gap
        block = self._block
        if block is None:
            small = self._pool.small
            block = self._block = self._pool.take() if self._has_bulk or small is None else small.take()
        if start + size > block.size:
            block = self._enlarged(block)
        return block.view[start : start + size]

    def _enlarged(self, block: Block) -> Block:
        """Replace a small block by a large one, with the same content."""
        large = self._pool.take()
        large.data[0 : self._end] = block.data[0 : self._end]
        self._return_block()
        self._block = large
        return large

    def commit(self, prefix: bytes, size: int) -> None:
        """Queue a payload of `size` bytes that was written behind the gap; `prefix` fills the gap."""
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
        self._return_block()  # `room` was called, but nothing was committed
        return None

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes of what `pending` returned."""
        if self._lane == _CONTROL:
            self._control_sent += count
            if self._control_sent == len(self._control_now):
                self._control_now = b""
                self._control_sent = 0
            return
        self._start += count
        if self._start == self._end:
            small = self._pool.small
            self._has_bulk = small is None or self._end > small.block_bytes >> 1
            self._start = self._end = self._fence = 0
            self._return_block()

    def release(self) -> None:
        """Discard everything: the connection is over."""
        self._control.clear()
        self._control_now = b""
        self._control_sent = 0
        self._start = self._end = self._fence = 0
        self._return_block()

    def _return_block(self) -> None:
        block = self._block
        if block is not None:
            self._block = None
            small = self._pool.small
            if small is not None and block.size == small.block_bytes:
                small.give(block)
            else:
                self._pool.give(block)
