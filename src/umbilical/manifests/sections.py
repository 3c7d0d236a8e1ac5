"""Strict reading of a user's YAML: one document, key by key. All problems are collected and reported together, with the
closest name for an unknown key."""

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeVar

import yaml

from umbilical.manifests.objects import IpAddress, IpNetwork

Choice = TypeVar("Choice", bound=Enum)
Value = TypeVar("Value")
_SHOWN: Final = 60
"""Maximum characters of a wrong value in a message."""


class YamlSection:
    """Each method takes one key; `finish` reports the keys that were not taken."""

    def __init__(self, value: object, path: str, problems: list[str]) -> None:
        self.path = path
        self.problems = problems
        self._taken: list[str] = []
        self._values: dict[str, Any] = self._mapping(value)

    def _mapping(self, value: object) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problems.append(f"{self.path or 'the file'} is not a mapping")
            return {}
        strange = [key for key in value if not isinstance(key, str)]
        self.problems.extend(f"{self.path or 'the file'}: key {_shown(key)} is not a string" for key in strange)
        return {key: one for key, one in value.items() if isinstance(key, str)}

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def take(self, key: str) -> Any:
        """Take a value of any type; None if it is missing."""
        self._taken.append(key)
        return self._values.get(key)

    def section(self, key: str) -> "YamlSection":
        return YamlSection(self.take(key), self._name(key), self.problems)

    def sections(self, key: str) -> list["YamlSection"]:
        entries = self._list(key)
        return [YamlSection(one, f"{self._name(key)}[{number}]", self.problems) for number, one in enumerate(entries)]

    def text(self, key: str, default: str | None = None, *, rule: str = r"[^\x00-\x1f]+", hint: str = "") -> str:
        """Take a string. Without `default` it is required."""
        value = self.take(key)
        if value is None:
            return self._missing(key, default, "")
        if not isinstance(value, str) or not re.fullmatch(rule, value):
            self._wrong(key, value, hint or "must be a string; put it in quotes")
            return default or ""
        return value

    def secret(self, key: str, rule: str, hint: str) -> str:
        """Take a string that no message may repeat."""
        value = self.take(key)
        if value is None:
            return ""
        if not isinstance(value, str) or not re.fullmatch(rule, value):
            self.problems.append(f"{self._name(key)}: {hint}")
            return ""
        return value

    def number(self, key: str, default: int | None, allowed: range) -> int:
        value = self.take(key)
        if value is None:
            return self._missing(key, default, allowed.start)
        if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
            self._wrong(key, value, f"must be a number from {allowed.start} to {allowed.stop - 1}")
            return allowed.start
        return value

    def switch(self, key: str, default: bool) -> bool:
        value = self.take(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self._wrong(key, value, "must be true or false")
        return default

    def choice(self, key: str, default: Choice) -> Choice:
        return self._chosen(key, type(default), default)

    def required_choice(self, key: str, kind: type[Choice]) -> Choice:
        if not self.has(key):
            self.problems.append(f"{self._name(key)} is needed: {_either(one.value for one in kind)}")
        return self._chosen(key, kind, next(iter(kind)))

    def texts(self, key: str, default: tuple[str, ...] = (), *, rule: str = r"\S+", hint: str = "") -> tuple[str, ...]:
        def read(value: object) -> str:
            if not isinstance(value, str) or not re.fullmatch(rule, value):
                raise ValueError(hint or "must be a string; put it in quotes")
            return value

        return self._each(key, read) if self.has(key) else self._untouched(key, default)

    def network(self, key: str) -> IpNetwork | None:
        return self._one(key, _network)

    def address(self, key: str) -> IpAddress | None:
        return self._one(key, _address)

    def networks(self, key: str) -> tuple[IpNetwork, ...]:
        return self._each(key, _network)

    def addresses(self, key: str) -> tuple[IpAddress, ...]:
        return self._each(key, _address)

    def ports(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        found = self._each(key, _port)
        return found if self.has(key) else default

    def labels(self, key: str, default: dict[str, str]) -> dict[str, str]:
        value = self.take(key)
        if value is None:
            return dict(default)
        if (
            not isinstance(value, dict)
            or not value
            or not all(isinstance(one, str) for pair in value.items() for one in pair)
        ):
            self._wrong(key, value, "must be a mapping of strings to strings")
            return dict(default)
        return dict(value)

    def finish(self) -> None:
        """Report every unknown key, with the closest known one."""
        for key in self._values:
            if key in self._taken:
                continue
            near = difflib.get_close_matches(key, self._taken, n=1)
            advice = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(self._taken)}"
            self.problems.append(f"{self._name(key)} is unknown; {advice}")

    def _chosen(self, key: str, kind: type[Choice], default: Choice) -> Choice:
        value = self.take(key)
        if value is None:
            return default
        for one in kind:
            if one.value == value:
                return one
        self._wrong(key, value, f"must be {_either(one.value for one in kind)}")
        return default

    def _one(self, key: str, read: Callable[[object], Value]) -> Value | None:
        """Take one value; None if it is missing or wrong."""
        value = self.take(key)
        try:
            return None if value is None else read(value)
        except ValueError as error:
            self._wrong(key, value, str(error))
            return None

    def _each(self, key: str, read: Callable[[object], Value]) -> tuple[Value, ...]:
        found: list[Value] = []
        for number, entry in enumerate(self._list(key)):
            try:
                found.append(read(entry))
            except ValueError as error:
                self._wrong(f"{key}[{number}]", entry, str(error))
        return tuple(found)

    def _list(self, key: str) -> list[Any]:
        value = self.take(key)
        if value is None or isinstance(value, list):
            return value or []
        self._wrong(key, value, "must be a list")
        return []

    def _untouched(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        self.take(key)
        return default

    def _missing(self, key: str, default: Value | None, placeholder: Value) -> Value:
        if default is not None:
            return default
        self.problems.append(f"{self._name(key)} is needed")
        return placeholder

    def _wrong(self, key: str, value: object, hint: str) -> None:
        self.problems.append(f"{self._name(key)} {_shown(value)}: {hint}")

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _network(value: object) -> IpNetwork:
    if not isinstance(value, str):
        raise ValueError("must be a network like 10.0.0.0/16")
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("must be a network like 10.0.0.0/16, without host bits") from None


def _address(value: object) -> IpAddress:
    if not isinstance(value, str) or "%" in value:
        raise ValueError("must be an IP address")
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        raise ValueError("must be an IP address") from None


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in range(1, 65536):
        raise ValueError("must be a port number")
    return value


def _either(values: Iterable[object]) -> str:
    return " or ".join(str(value) for value in values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# etcd refuses objects above 1.5 MiB, so a longer file is neither a spec nor a manifest.
MAX_BYTES: Final = 1 << 20
# A pod has about twelve levels.
MAX_DEPTH: Final = 50


class DocumentError(ValueError):
    """Why the document is invalid, in a few words."""


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            # Aliases expand, without end if one is inside its own anchor.
            raise DocumentError("it uses YAML aliases")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DocumentError(f"it is nested deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # YAML silently uses the last one, so that edits of the first have no effect.
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise DocumentError(f"it has the key {key} twice in one mapping, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def read_document(content: bytes) -> Any:
    """Read a file with one document. Raises DocumentError: not YAML, or several documents."""
    if len(content) > MAX_BYTES:
        raise DocumentError(f"it has {len(content)} bytes")
    try:
        return yaml.load(content, _Loader)
    except DocumentError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(f"it is not one YAML document: {_brief(error)}") from None


def _brief(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
    return f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)
