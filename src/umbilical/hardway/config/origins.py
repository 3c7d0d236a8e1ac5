"""Where each value of a resolved cluster comes from: the user's file, our defaults, or another value."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, cast

Given = TypeVar("Given")


class Origin(Enum):
    GIVEN = "given"
    DEFAULT = "default"
    COMPUTED = "computed"


@dataclass(frozen=True)
class Value:
    path: str
    value: Any
    origin: Origin
    source: str = ""
    """From which values it is computed, or where the file has it if that is another path."""

    @property
    def plain(self) -> Any:
        """The value as JSON and YAML have it."""
        return _plain(self.value)


class Origins:
    """Takes each value once, and notes where it came from."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._values: dict[str, Value] = {}

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(self._values.values())

    def is_given(self, path: str) -> bool:
        return path in self._given

    def take(self, path: str, otherwise: Given, source: str = "", given_as: str = "") -> Given:
        """Return what the user gave, else the other value; that is a default if no source is named.

        `given_as` is the user's path where it is another than ours.
        """
        place = given_as or path
        if place in self._given:
            return cast(Given, self._note(Value(path, self._given[place], Origin.GIVEN, given_as)))
        origin = Origin.COMPUTED if source else Origin.DEFAULT
        return cast(Given, self._note(Value(path, otherwise, origin, source)))

    def derive(self, path: str, value: Given, source: str) -> Given:
        """Note a value that nobody can give."""
        return cast(Given, self._note(Value(path, value, Origin.COMPUTED, source)))

    def _note(self, value: Value) -> Any:
        self._values[value.path] = value
        return value.value


def nested(values: tuple[Value, ...]) -> dict[str, Any]:
    """Put values into one tree by the parts of their paths, as in a file."""
    root: dict[str, Any] = {}
    for one in values:
        *folders, name = one.path.split(".")
        place = root
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = one.plain
    return root


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
