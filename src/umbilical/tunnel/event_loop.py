"""An asyncio event loop that shares one thread and one epoll with the data plane's loop.

asyncio sees only its own descriptors; those of the data plane are served inside `select`, without tasks, and so are
those of `EventLoop.watch`.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from typing import Any, TypeVarTuple

from umbilical.tunnel.loop import HANGUP, IN, OUT, Loop

_Ts = TypeVarTuple("_Ts")

Ready = Callable[[int], None]
"""Gets the mask of epoll. Must not raise."""


class _KeysByFile(Mapping[Any, selectors.SelectorKey]):
    """Finds a key by a file object, too: asyncio of Python 3.13 looks keys up here, and not with `get_key`."""

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_descriptor(fileobj)]

    def get(self, fileobj: Any, default: Any = None) -> Any:
        return self._keys.get(_descriptor(fileobj), default)

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class DataPlaneSelector(selectors.BaseSelector):
    def __init__(self, loop: Loop) -> None:
        self.data_plane = loop
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._keys_by_file = _KeysByFile(self._keys)
        self.watched: dict[int, Ready] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = _descriptor(fileobj)
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[descriptor] = key
        self.data_plane.add_foreign(descriptor, _mask(events))
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        descriptor = _descriptor(fileobj)
        key = self._keys.pop(descriptor)
        try:
            self.data_plane.remove_foreign(descriptor)
        except OSError:
            pass  # closed before it was unregistered: epoll has dropped it
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = _descriptor(fileobj)
        old = self._keys[descriptor]
        key = selectors.SelectorKey(old.fileobj, descriptor, events, data)
        if old.events != events:
            self.data_plane.modify_foreign(descriptor, _mask(events))
        self._keys[descriptor] = key
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = []
        for descriptor, mask in self._wait(timeout):
            key = self._keys.get(descriptor)
            if key is not None:
                ready.append((key, _events(mask) & key.events))
        return ready

    def _wait(self, timeout: float | None) -> list[tuple[int, int]]:
        """Run turns of the data plane until asyncio has something to do: a descriptor, a timer or a callback.

        Returning to asyncio after every turn would cost more than the turn itself.
        """
        plane = self.data_plane
        plane.asyncio_called = False
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            foreign = plane.turn(timeout)
            if foreign and self.watched:
                foreign = self._serve_watched(foreign)
            if foreign or plane.asyncio_called:
                return foreign
            if deadline is not None:
                timeout = deadline - plane.now
                if timeout <= 0:
                    return foreign

    def _serve_watched(self, foreign: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the events that are left for asyncio."""
        rest = []
        for event in foreign:
            ready = self.watched.get(event[0])
            if ready is None:
                rest.append(event)
            else:
                ready(event[1])
        return rest

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys_by_file

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys_by_file[fileobj]

    def close(self) -> None:
        self._keys.clear()
        self.data_plane.close()


def _descriptor(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def _mask(events: int) -> int:
    return (IN if events & selectors.EVENT_READ else 0) | (OUT if events & selectors.EVENT_WRITE else 0)


def _events(mask: int) -> int:
    readable = selectors.EVENT_READ if mask & (IN | HANGUP) else 0
    return readable | (selectors.EVENT_WRITE if mask & (OUT | HANGUP) else 0)


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with `data_plane`; a callback scheduled during a turn returns control to asyncio."""

    def __init__(self) -> None:
        self.data_plane = Loop()
        self._ours = DataPlaneSelector(self.data_plane)
        super().__init__(self._ours)

    def watch(self, descriptor: int, mask: int, ready: Ready) -> None:
        """Call `ready` inside `select`: a callback of asyncio costs more than most of what it does for a socket."""
        self._ours.watched[descriptor] = ready
        self.data_plane.add_foreign(descriptor, mask)

    def modify_watch(self, descriptor: int, mask: int) -> None:
        self.data_plane.modify_foreign(descriptor, mask)

    def unwatch(self, descriptor: int) -> None:
        """Call it before closing the descriptor."""
        if self._ours.watched.pop(descriptor, None) is not None:
            self.data_plane.remove_foreign(descriptor)

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.data_plane.asyncio_called = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.data_plane.asyncio_called = True
        return super().call_at(when, callback, *args, context=context)


def new_event_loop() -> EventLoop:
    return EventLoop()


def data_plane_of_running_loop() -> Loop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EventLoop)
    return loop.data_plane
