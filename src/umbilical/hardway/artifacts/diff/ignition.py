"""Ignition configs compared by decoded files and units, each file by its own kind."""

from collections.abc import Callable, Iterator
from typing import Any

from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts.diff.part import HIDDEN, Change, Part, shortened
from umbilical.ignition.config import Config, read_config
from umbilical.ignition.diff import ContentChange, Difference, FieldChange, compare

Comparer = Callable[[str, bytes | None, bytes | None], tuple[Part, ...]]
"""Compares contents by the path that they lie at."""

_CHANGES = {"added": Change.CREATED, "removed": Change.REMOVED, "changed": Change.CHANGED}
_EMPTY = b'{"ignition":{"version":"3.4.0"}}'


def compare_ignition(old: bytes | None, new: bytes | None, inside: Comparer) -> tuple[Part, ...] | None:
    """Compare configs; None where a side is none."""
    try:
        before, after = _read(old), _read(new)
    except IgnitionError:
        return None
    return tuple(_part(one, inside) for one in compare(before, after))


def _read(content: bytes | None) -> Config:
    return read_config(_EMPTY if content is None else content)


def _part(difference: Difference, inside: Comparer) -> Part:
    change = _CHANGES[difference.change]
    if difference.kind == "field":
        (field,) = difference.fields
        return _field(difference.place, change, field)
    place = f"{difference.kind} {shortened(difference.place)}"
    if change is not Change.CHANGED:
        return Part(place, change)
    return Part(place, change, parts=tuple(_inner(difference, inside)))


def _inner(difference: Difference, inside: Comparer) -> Iterator[Part]:
    for field in difference.fields:
        yield _field(field.name, Change.CHANGED, field)
    for content in difference.contents:
        yield from _content(difference, content, inside)


def _content(difference: Difference, content: ContentChange, inside: Comparer) -> Iterator[Part]:
    if difference.kind == "file" and content.name == "contents":
        yield from inside(difference.place, content.old, content.new)
    elif content.is_secret:
        yield Part(content.name, Change.CHANGED, note=HIDDEN)
    else:
        yield Part(content.name, Change.CHANGED, lines=tuple((content.lines() or [])[2:]))


def _field(place: str, change: Change, field: FieldChange) -> Part:
    if field.is_secret:
        return Part(shortened(place), change, note=HIDDEN)
    old, new = (_shown(place, side) for side in (field.old, field.new))
    return Part(shortened(place), change, old, new)


def _shown(name: str, value: Any) -> str | None:
    if value is None:
        return None
    # Ignition has modes in decimal, people have them in octal.
    return f"{value:04o}" if name == "mode" and isinstance(value, int) else shortened(str(value))
