"""Reads YAML objects, bounded and without aliases, and their fields; errors name the field's path."""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from umbilical.fault import PodError


class Fields:
    """One object of a manifest. A null field counts as missing, as in the API."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise wrong(path, "it is not an object")
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
            raise self.wrong(key, "must be a string")
        return value

    def name(self, key: str) -> str:
        """Return a string that is valid as part of a path."""
        value = self.text(key)
        if not value or "/" in value or value in (".", ".."):
            raise self.wrong(key, f"{value!r} is not a valid name")
        return value

    def number(self, key: str, default: int, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        value = self._value.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self.wrong(key, f"must be an integer from {minimum} to {maximum}")
        return value

    def optional_number(self, key: str) -> int | None:
        return self.number(key, 0) if key in self else None

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self._value.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
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
                raise wrong(path, "must be a string")
            found.append(value)
        return tuple(found)

    def numbers(self, key: str) -> tuple[int, ...]:
        found = []
        for value, path in self._entries(key):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise wrong(path, "must be a non-negative integer")
            found.append(value)
        return tuple(found)

    def table(self, key: str) -> dict[str, str]:
        value = self._value.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
            raise self.wrong(key, "must be a mapping of strings to strings")
        return dict(value)

    def wrong(self, key: str, why: str) -> PodError:
        return wrong(f"{self.path}.{key}", why)

    def _entries(self, key: str) -> Iterator[tuple[object, str]]:
        value = self._value.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "must be a list")
        for index, entry in enumerate(value or []):
            yield entry, f"{self.path}.{key}[{index}]"


def wrong(path: str, why: str) -> PodError:
    remedy = "correct the manifest, or use the real kubelet: umbilical lab up --runner kubelet"
    return PodError("UMB831", f"the pod runner rejected {path}", why, remedy)


# etcd refuses objects above 1.5 MiB, so a longer file is not a manifest.
MAX_BYTES: Final = 1 << 20
# A pod has about twelve levels. Parsing time is quadratic in the depth.
MAX_DEPTH: Final = 100
MAX_DOCUMENTS: Final = 200
# libyaml is ten times as fast; PyYAML may be built without it.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING: Final = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING: Final = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def read_documents(content: bytes, title: str) -> list[dict[str, Any]]:
    """Read every object of a file, without empty documents. Raises PodError: UMB830, not YAML with objects."""
    if len(content) > MAX_BYTES:
        raise unreadable(title, f"it has {len(content)} bytes; the limit is {MAX_BYTES}")
    try:
        _check_events(content, title)
        documents = [document for document in yaml.load_all(content, _Loader) if document is not None]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise unreadable(title, _first_line(error)) from None
    if not all(isinstance(document, dict) for document in documents):
        raise unreadable(title, "one of its documents is not an object")
    return documents


def unreadable(title: str, why: str) -> PodError:
    return PodError("UMB830", f"could not read {title}", why, "kubectl apply --dry-run=client -f FILE")


def _check_events(content: bytes, title: str) -> None:
    depth = documents = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.AliasEvent):
            # Aliases expand, without end if one is inside its own anchor.
            raise unreadable(title, "it uses YAML aliases")
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > MAX_DEPTH or documents > MAX_DOCUMENTS:
            raise unreadable(title, f"it has more than {MAX_DEPTH} levels or more than {MAX_DOCUMENTS} documents")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join(lines[:2]) or type(error).__name__
