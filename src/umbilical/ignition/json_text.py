"""JSON text with positions: the span of each member and element, found with the C scanner of the standard library."""

import re
from json import JSONDecoder
from typing import Any, Final, NamedTuple

from umbilical.fault import IgnitionError

# An installer's config has 0.3 to 5 MB; the rest leaves room for embedded images.
MAX_CONFIG_BYTES: Final = 64 << 20
# Ignition's deepest field is at level 8.
MAX_DEPTH: Final = 100
# Python refuses to convert more than 4300 digits.
_MAX_DIGITS: Final = 4000
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"
_SPACE: Final = re.compile(r"[ \t\n\r]*")


class Span(NamedTuple):
    """Position of a value in the text; `end` is exclusive."""

    start: int
    end: int


class LocatedValue(NamedTuple):
    span: Span
    value: Any


def decode_text(content: bytes) -> str:
    if len(content) > MAX_CONFIG_BYTES:
        raise not_ignition(f"it has {len(content)} bytes; the limit is {MAX_CONFIG_BYTES}")
    if content.startswith(_BYTE_ORDER_MARK):
        raise not_ignition("it begins with a byte order mark, which Ignition refuses")
    if content.startswith(_GZIP):
        raise not_ignition("it is compressed with gzip", "unpack it: gunzip -c FILE > bootstrap.ign")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise not_ignition(f"it is not UTF-8: {fault.reason} at byte {fault.start}") from None


def parse_object(text: str) -> dict[str, Any]:
    """Parse a text that must be one JSON object."""
    try:
        value = _DECODER.decode(text)
    except ValueError as fault:
        raise not_ignition(f"it is not JSON: {fault}") from None
    except RecursionError:
        raise not_ignition(_TOO_DEEP) from None
    if not isinstance(value, dict):
        raise not_ignition("it is JSON, but not an object")
    _check_depth(value)
    return value


def members(text: str, start: int) -> dict[str, LocatedValue]:
    """Locate the members of the object at `start`, after `parse_object` has parsed the text."""
    found: dict[str, LocatedValue] = {}
    position = _skip(text, start + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        if key in found:
            raise not_ignition(f"the key {key!r} is twice in one object, and parsers differ on which one counts")
        found[key] = _place(text, _skip(text, _skip(text, position) + 1))
        position = _next(text, found[key].span.end)
    return found


def elements(text: str, start: int) -> list[LocatedValue]:
    """Locate the elements of the array at `start`."""
    found: list[LocatedValue] = []
    position = _skip(text, start + 1)
    while text[position] != "]":
        found.append(_place(text, position))
        position = _next(text, found[-1].span.end)
    return found


def not_ignition(why: str, remedy: str = "pass the .ign file of the installer") -> IgnitionError:
    return IgnitionError("UMB140", "the file is not an Ignition config", why, remedy)


_TOO_DEEP: Final = f"it is nested deeper than {MAX_DEPTH} levels"


def _place(text: str, start: int) -> LocatedValue:
    value, end = _DECODER.raw_decode(text, start)
    return LocatedValue(Span(start, end), value)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def _next(text: str, position: int) -> int:
    """Skip spaces and a comma after a value."""
    position = _skip(text, position)
    return _skip(text, position + 1) if text[position] == "," else position


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise not_ignition(_TOO_DEEP)


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = JSONDecoder(parse_int=_parse_integer, parse_constant=_refuse_constant)
