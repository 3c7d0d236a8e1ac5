"""Parsing and printing of values as in Go's pflag, strconv, time and encoding/csv.

Error texts are exactly Go's, because people and scripts search logs for them.
"""

import math
import re
import struct
from typing import Final

NANOSECONDS_PER_SECOND: Final = 1_000_000_000
_DURATION_LIMIT: Final = 1 << 63
_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS_PER_SECOND,
    "m": 60 * NANOSECONDS_PER_SECOND,
    "h": 3600 * NANOSECONDS_PER_SECOND,
}
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# Compiled at first use: a daemon starts faster.
_INTEGER: Final = r"0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*"
_DECIMAL: Final = r"[0-9]+"
_FLOAT: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan"
_HEX_FLOAT: Final = r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+"
_ESCAPES: Final[dict[str, str]] = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
}


class ValueSyntaxError(Exception):
    """A text is not a value of the expected kind; the message is Go's."""


def quote(text: str, mark: str = '"') -> str:
    """Return the text as Go's `%q` prints it (`mark` is a single quote for a rune)."""
    return mark + "".join(_quoted_character(character, mark) for character in text) + mark


def _quoted_character(character: str, mark: str) -> str:
    if character == mark:
        return "\\" + character
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python's form of a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _number_error(function: str, text: str, fault: str) -> ValueSyntaxError:
    return ValueSyntaxError(f"strconv.{function}: parsing {quote(text)}: {fault}")


def parse_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _number_error("ParseBool", text, "invalid syntax")


def parse_int(text: str, base: int = 0, bits: int = 64) -> int:
    """Parse a signed integer; base 0 accepts the prefixes and underscores of Go literals."""
    negative = text.startswith("-")
    magnitude = _magnitude("ParseInt", text, text[1:] if text[:1] in ("+", "-") else text, base)
    limit = 1 << (bits - 1)
    if magnitude > limit or (magnitude == limit and not negative):
        raise _number_error("ParseInt", text, "value out of range")
    return -magnitude if negative else magnitude


def parse_uint(text: str) -> int:
    magnitude = _magnitude("ParseUint", text, text, base=0)
    if magnitude >= 1 << 64:
        raise _number_error("ParseUint", text, "value out of range")
    return magnitude


def _magnitude(function: str, text: str, digits: str, base: int) -> int:
    if not re.fullmatch(_INTEGER if base == 0 else _DECIMAL, digits):
        raise _number_error(function, text, "invalid syntax")
    plain = digits.replace("_", "").lower()
    if base == 0 and len(plain) > 1 and plain[0] == "0":
        radix = {"x": 16, "b": 2, "o": 8}.get(plain[1], 8)
        return int(plain[2:] if plain[1] in "xbo" else plain, radix)
    plain = plain.lstrip("0") or "0"
    return int(plain) if len(plain) <= 20 else 1 << 64  # Python's own error for thousands of digits differs


def parse_float32(text: str) -> float:
    hexadecimal = re.fullmatch(_HEX_FLOAT, text, re.IGNORECASE)
    if not hexadecimal and not re.fullmatch(_FLOAT, text, re.IGNORECASE):
        raise _number_error("ParseFloat", text, "invalid syntax")
    try:
        value = float.fromhex(text) if hexadecimal else float(text)
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        raise _number_error("ParseFloat", text, "value out of range") from None
    if math.isinf(value) and "n" not in text.lower():
        raise _number_error("ParseFloat", text, "value out of range")
    return float(single)


def parse_duration(text: str) -> int:
    """Read a duration such as `1h0m0s`, `100ms` or `-1.5h` into nanoseconds."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total = 0
    invalid = ValueSyntaxError(f"time: invalid duration {_duration_quote(text)}")
    if not rest:
        raise invalid
    while rest:
        amount, rest = _one_duration(text, rest)
        total += amount
        if total > _DURATION_LIMIT:
            raise invalid
    if total == _DURATION_LIMIT and not negative:
        raise invalid
    return -total if negative else total


def _one_duration(text: str, rest: str) -> tuple[int, str]:
    """Parse one number and its unit at the start of `rest`."""
    invalid = ValueSyntaxError(f"time: invalid duration {_duration_quote(text)}")
    whole, rest = _leading(rest, "0123456789")
    fraction = ""
    if rest.startswith("."):
        fraction, rest = _leading(rest[1:], "0123456789")
    if not whole and not fraction:
        raise invalid
    unit_name, rest = _until(rest, ".0123456789")
    if not unit_name:
        raise ValueSyntaxError(f"time: missing unit in duration {_duration_quote(text)}")
    unit = _UNITS.get(unit_name)
    if unit is None:
        raise ValueSyntaxError(f"time: unknown unit {_duration_quote(unit_name)} in duration {_duration_quote(text)}")
    if len(whole.lstrip("0")) > 19:
        raise invalid
    amount = int(whole or "0") * unit
    kept = fraction[:18]  # Go ignores digits beyond 64 bits; they are below a nanosecond
    amount += int(int(kept or "0") * (unit / 10.0 ** len(kept)))
    if amount > _DURATION_LIMIT:
        raise invalid
    return amount, rest


def _leading(text: str, wanted: str) -> tuple[str, str]:
    length = next((i for i, character in enumerate(text) if character not in wanted), len(text))
    return text[:length], text[length:]


def _until(text: str, unwanted: str) -> tuple[str, str]:
    length = next((i for i, character in enumerate(text) if character in unwanted), len(text))
    return text[:length], text[length:]


def _duration_quote(text: str) -> str:
    """Quote as Go's package time: every byte outside printable ASCII in hexadecimal."""
    out = []
    for byte in text.encode("utf-8", "surrogateescape"):
        if byte >= 0x80 or byte < 0x20:
            out.append(f"\\x{byte:02x}")
        else:
            out.append("\\" + chr(byte) if chr(byte) in '"\\' else chr(byte))
    return '"' + "".join(out) + '"'


def format_duration(nanoseconds: int) -> str:
    """Print nanoseconds as Go prints a Duration: `1h0m0s`, `1.5s`, `100ms`, `0s`."""
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    if rest == 0:
        return "0s"
    if rest < 1_000:
        return f"{sign}{rest}ns"
    if rest < 1_000_000:
        return f"{sign}{_decimal(rest, 3)}\u00b5s"
    if rest < NANOSECONDS_PER_SECOND:
        return f"{sign}{_decimal(rest, 6)}ms"
    minutes, below_minute = divmod(rest, 60 * NANOSECONDS_PER_SECOND)
    seconds = _decimal(below_minute, 9) + "s"
    if minutes == 0:
        return sign + seconds
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _decimal(value: int, places: int) -> str:
    whole, fraction = divmod(value, 10**places)
    digits = f"{fraction:0{places}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def duration_seconds(nanoseconds: int) -> float:
    return nanoseconds / NANOSECONDS_PER_SECOND


def parse_csv(text: str) -> tuple[str, ...]:
    """Parse one record of comma-separated, possibly quoted values; an empty text has no values."""
    if text == "":
        return ()
    line = text.lstrip("\n")
    if not line:
        raise ValueSyntaxError("EOF")
    fields: list[str] = []
    position = 0
    while True:
        quoted = line[position : position + 1] == '"'
        field, position = _quoted_field(line, position) if quoted else _bare_field(line, position)
        fields.append(field)
        if position >= len(line) or line[position] == "\n":
            return tuple(fields)
        position += 1


def _bare_field(line: str, start: int) -> tuple[str, int]:
    end = next((i for i in range(start, len(line)) if line[i] in ",\n"), len(line))
    field = line[start:end]
    if '"' in field:
        raise _csv_error(line, start + field.index('"'), 'bare " in non-quoted-field')
    return field, end


def _quoted_field(line: str, start: int) -> tuple[str, int]:
    field = ""
    position = start + 1
    while True:
        close = line.find('"', position)
        if close < 0:
            raise _csv_error(line, len(line), 'extraneous or missing " in quoted-field')
        field += line[position:close]
        after = line[close + 1 : close + 2]
        if after in ("", ",", "\n"):
            return field, close + 1
        if after != '"':
            raise _csv_error(line, close, 'extraneous or missing " in quoted-field')
        field += '"'
        position = close + 2


def _csv_error(line: str, position: int, fault: str) -> ValueSyntaxError:
    column = len(line[:position].encode("utf-8", "surrogateescape")) + 1
    return ValueSyntaxError(f"parse error on line 1, column {column}: {fault}")
