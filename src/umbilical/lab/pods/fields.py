"""Fields of a manifest by name and type. What is there and wrong is told with the path that leads to it."""

from collections.abc import Iterator
from typing import Any

from umbilical.fault import PodError


class Fields:
    """One object of a manifest. A field that is null is missing, as in the API."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise wrong(path, "it is no object")
        self._value: dict[Any, Any] = value

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    def raw(self, key: str) -> Any:
        return self._value.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value.get(key, default)
        if value is None:
            value = default
        if not isinstance(value, str) or "\0" in value:
            raise self.wrong(key, "a text is needed here")
        return value

    def name(self, key: str) -> str:
        """A text that becomes part of a path."""
        value = self.text(key)
        if not value or "/" in value or value in (".", ".."):
            raise self.wrong(key, f"{value!r} is no name")
        return value

    def number(self, key: str, default: int, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        value = self._value.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self.wrong(key, f"a whole number from {minimum} to {maximum} is needed here")
        return value

    def optional_number(self, key: str) -> int | None:
        return self.number(key, 0) if key in self else None

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self._value.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false is needed here")
        return default if value is None else value

    def child(self, key: str) -> "Fields | None":
        value = self._value.get(key)
        return None if value is None else Fields(value, f"{self.path}.{key}")

    def needed(self, key: str) -> "Fields":
        return Fields(self._value.get(key), f"{self.path}.{key}")

    def children(self, key: str) -> "list[Fields]":
        return [Fields(value, path) for value, path in self._entries(key)]

    def texts(self, key: str) -> tuple[str, ...]:
        found = []
        for value, path in self._entries(key):
            if not isinstance(value, str) or "\0" in value:
                raise wrong(path, "a text is needed here")
            found.append(value)
        return tuple(found)

    def numbers(self, key: str) -> tuple[int, ...]:
        found = []
        for value, path in self._entries(key):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise wrong(path, "a whole number is needed here")
            found.append(value)
        return tuple(found)

    def table(self, key: str) -> dict[str, str]:
        value = self._value.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
            raise self.wrong(key, "texts by name are needed here")
        return dict(value)

    def wrong(self, key: str, why: str) -> PodError:
        return wrong(f"{self.path}.{key}", why)

    def _entries(self, key: str) -> Iterator[tuple[object, str]]:
        value = self._value.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "a list is needed here")
        for index, entry in enumerate(value or []):
            yield entry, f"{self.path}.{key}[{index}]"


def wrong(path: str, why: str) -> PodError:
    remedy = "correct the manifest, or run it under the real kubelet: lab up --runner kubelet"
    return PodError("UMB831", f"{path} cannot be used", why, remedy)
