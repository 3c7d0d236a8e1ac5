"""What waits to be sent on one connection, in two lanes that meet only at frame boundaries.

The control lane (settings, pings, credit, dials) goes first; once the data lane was begun, it goes behind the frames
that are there and still ahead of all that come later: DATA must not overtake the DIAL_RSP that announces it.
The data lane is a block that payload is received into directly; an idle connection holds no block.
"""

from typing import Final

from umbilical.wire.buffer import Block, BlockPool

_CONTROL: Final = 1
_DATA: Final = 2


class Outbox:
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
