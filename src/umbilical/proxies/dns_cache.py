"""Answers, for as long as they may be kept; the one that was not used for longest goes first when there are many."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

MOST_ENTRIES: Final = 4096
"""A few hundred bytes each. A security limit: clients choose the names."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    def __init__(self, now: Callable[[], float], most_entries: int = MOST_ENTRIES) -> None:
        self._now: Final = now
        self._most: Final = most_entries
        self._entries: Final[OrderedDict[Key, tuple[float, Value]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        expires, value = entry
        if expires <= self._now():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value, seconds: float) -> None:
        if seconds <= 0:
            return
        self._entries[key] = (self._now() + seconds, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)
