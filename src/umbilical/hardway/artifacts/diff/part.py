"""One thing that differs, with what differs inside of it."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

MAX_SHOWN: Final = 160
"""Characters of a value."""
HIDDEN: Final = "differs; not shown, it is secret"


class Change(Enum):
    CREATED = "created"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True)
class Part:
    place: str
    """A path, an object, a field: named from what it is a part of."""
    change: Change
    old: str | None = None
    new: str | None = None
    """Values as they are shown; None where there is none, or where it is not shown."""
    note: str = ""
    """What is said instead of values."""
    lines: tuple[str, ...] = ()
    """A longer text's lines, as `diff -u` has them."""
    parts: tuple["Part", ...] = ()


def change_of(old: object, new: object) -> Change:
    if old is None:
        return Change.CREATED
    return Change.REMOVED if new is None else Change.CHANGED


def values(place: str, old: str | None, new: str | None) -> Part:
    return Part(place, change_of(old, new), old, new)


def as_json(part: Part) -> dict[str, Any]:
    """Leave out what is empty."""
    described: dict[str, Any] = {
        "place": part.place,
        "change": part.change.value,
        "old": part.old,
        "new": part.new,
        "note": part.note,
        "lines": list(part.lines),
        "parts": [as_json(one) for one in part.parts],
    }
    return {name: value for name, value in described.items() if value not in (None, "", [])}


def shortened(text: str) -> str:
    """Cut a value, and let no terminal obey it."""
    cut = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)
