"""An asyncio event loop whose selector is the data plane's loop: one thread, one epoll, both planes.

asyncio sees only its own descriptors; the data plane's are served inside `select` and never become tasks.
"""

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

from umbilical.tunnel.loop import HANGUP, IN, OUT, Loop


class DataPlaneSelector(selectors.BaseSelector):
    def __init__(self, loop: Loop) -> None:
        self.data_plane = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[descriptor] = key
        self.data_plane.add_foreign(descriptor, _mask(events))
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys.pop(descriptor)
        try:
            self.data_plane.remove_foreign(descriptor)
        except OSError:
            pass  # closed before it was unregistered: epoll has dropped it by itself
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        old = self._keys[descriptor]
        key = selectors.SelectorKey(old.fileobj, descriptor, events, data)
        if old.events != events:
            self.data_plane.modify_foreign(descriptor, _mask(events))
        self._keys[descriptor] = key
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = []
        for descriptor, mask in self.data_plane.turn(timeout):
            key = self._keys.get(descriptor)
            if key is not None:
                ready.append((key, _events(mask) & key.events))
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def close(self) -> None:
        self._keys.clear()
        self.data_plane.close()


def _mask(events: int) -> int:
    return (IN if events & selectors.EVENT_READ else 0) | (OUT if events & selectors.EVENT_WRITE else 0)


def _events(mask: int) -> int:
    readable = selectors.EVENT_READ if mask & (IN | HANGUP) else 0
    return readable | (selectors.EVENT_WRITE if mask & (OUT | HANGUP) else 0)


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with `data_plane` beside it."""

    def __init__(self) -> None:
        self.data_plane = Loop()
        super().__init__(DataPlaneSelector(self.data_plane))


def new_event_loop() -> EventLoop:
    return EventLoop()


def data_plane_of_running_loop() -> Loop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EventLoop)
    return loop.data_plane
