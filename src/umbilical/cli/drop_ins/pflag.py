"""A parser of flags with the syntax, defaults and error texts of Go's pflag.

`FlagSet` parses arguments by tables of flags and returns typed values. Shorthands exist for one-letter names (`-v`)
and for help (`-h`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from umbilical.cli.drop_ins import go_values
from umbilical.cli.drop_ins.go_values import ValueSyntaxError, quote
from umbilical.record import Record

FlagValue = str | bool | int | float | tuple[str, ...]


class FlagError(Exception):
    """The arguments are not valid; the message is pflag's."""


class FlagKind(Record):
    name: str
    """Name of the value in the usage text; empty for switches."""
    parse: Callable[[str], FlagValue]
    show: Callable[[FlagValue], str]
    bare: str | None = None
    """Value of a flag that is given without one."""
    accumulates: bool = False


class FlagSpec(Record):
    name: str
    kind: FlagKind
    default: FlagValue
    help: str
    hidden: bool = False
    deprecated: str = ""
    alias_of: str = ""
    """The flag whose value this one sets."""

    @property
    def shorthand(self) -> str:
        if self.name == "help":
            return "h"
        return self.name if len(self.name) == 1 else ""


def _show_text(value: FlagValue) -> str:
    return quote(str(value))


def _show_list(value: FlagValue) -> str:
    return "[" + ",".join(cast("tuple[str, ...]", value)) + "]"


def _parse_uint32(text: str) -> int:
    value = go_values.parse_uint(text)
    if value >= 1 << 32:
        raise ValueSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return value


def _parse_selector(text: str) -> str:
    from umbilical.cluster.labels import SelectorError, parse_selector

    try:
        parse_selector(text)
    except SelectorError as fault:
        raise ValueSyntaxError(str(fault)) from None
    return text


BOOL: Final = FlagKind("", go_values.parse_bool, lambda value: "true" if value else "false", bare="true")
STRING: Final = FlagKind("string", str, _show_text)
INT: Final = FlagKind("int", go_values.parse_int, str)
FLOAT: Final = FlagKind("float32", go_values.parse_float32, lambda value: f"{value:g}")
UINT32: Final = FlagKind("uint32", _parse_uint32, str)
SECRET: Final = FlagKind("string", str, lambda value: '"(hidden)"' if value else '""')
"""A URL that may contain a password; hidden in the log."""
SELECTOR: Final = FlagKind("string", _parse_selector, _show_text)
DURATION: Final = FlagKind(
    "duration", go_values.parse_duration, lambda value: go_values.format_duration(cast(int, value))
)
STRING_SLICE: Final = FlagKind("strings", go_values.parse_csv, _show_list, accumulates=True)

HELP: Final = "help"


class FlagSet:
    """One program's flags and, after `parse`, their values."""

    def __init__(self, program: str, *tables: Iterable[FlagSpec]) -> None:
        help_flag = FlagSpec(HELP, BOOL, False, f"help for {program}")
        self.flags: Final = {flag.name: flag for table in (*tables, (help_flag,)) for flag in table}
        self.positional: list[str] = []
        self.notices: list[str] = []
        """Notices about deprecated flags, in the order of the arguments."""
        self._shorthands = {flag.shorthand: flag for flag in self.flags.values() if flag.shorthand}
        self._values = {flag.name: flag.default for flag in self.flags.values()}
        self._changed: set[str] = set()

    def parse(self, arguments: Sequence[str]) -> None:
        """Parse the arguments, also mixed with positional ones. The last of equal flags wins, lists are extended."""
        rest = list(arguments)
        while rest:
            argument = rest.pop(0)
            if argument == "--":
                self.positional += rest
                return
            if argument.startswith("--"):
                self._read_long(argument, rest)
            elif argument.startswith("-") and len(argument) > 1:
                self._read_short(argument[1:], rest)
            else:
                self.positional.append(argument)

    def changed(self, name: str) -> bool:
        return name in self._changed

    def value(self, name: str) -> FlagValue:
        return self._values[name]

    def switch(self, name: str) -> bool:
        return cast(bool, self._values[name])

    def text(self, name: str) -> str:
        return cast(str, self._values[name])

    def number(self, name: str) -> int:
        return cast(int, self._values[name])

    def fraction(self, name: str) -> float:
        return cast(float, self._values[name])

    def seconds(self, name: str) -> float:
        return go_values.duration_seconds(self.number(name))

    def items(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._values[name])

    def shown(self, name: str) -> str:
        return self.flags[name].kind.show(self._values[name])

    def usage(self) -> str:
        """Return the list of visible flags, aligned as pflag aligns it."""
        visible = sorted((f for f in self.flags.values() if not f.hidden and not f.deprecated), key=lambda f: f.name)
        rows = [(_usage_name(flag), _usage_help(flag)) for flag in visible]
        width = max(len(name) for name, _ in rows)
        return "".join(f"{name:<{width}}   {text}\n" for name, text in rows)

    def _read_long(self, argument: str, rest: list[str]) -> None:
        name, equals, value = argument[2:].partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {argument}")
        flag = self.flags.get(name)
        if flag is None:
            raise FlagError(f"unknown flag: --{name}")
        if not equals:
            if flag.kind.bare is not None:
                value = flag.kind.bare
            elif rest:
                value = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: --{name}")
        self._set(flag, value)

    def _read_short(self, letters: str, rest: list[str]) -> None:
        """Parse a group such as `v4`, `v=4` or `hv4`; `-test.…` of Go's test tool is ignored."""
        while letters and not letters.startswith("test."):
            flag = self._shorthands.get(letters[0])
            if flag is None:
                raise FlagError(f"unknown shorthand flag: {quote(letters[0], chr(39))} in -{letters}")
            group, letters = letters, letters[1:]
            if len(group) > 2 and group[1] == "=":
                value, letters = group[2:], ""
            elif flag.kind.bare is not None:
                value = flag.kind.bare
            elif letters:
                value, letters = letters, ""
            elif rest:
                value = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: {quote(group[0], chr(39))} in -{group}")
            self._set(flag, value)

    def _set(self, flag: FlagSpec, text: str) -> None:
        target = flag.alias_of or flag.name
        try:
            value = flag.kind.parse(text)
        except ValueSyntaxError as fault:
            spelling = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
            raise FlagError(f"invalid argument {quote(text)} for {quote(spelling)} flag: {fault}") from None
        if flag.kind.accumulates and target in self._changed:
            value = self.items(target) + cast("tuple[str, ...]", value)
        self._values[target] = value
        self._changed |= {flag.name, target}
        if flag.deprecated:
            self.notices.append(f"Flag --{flag.name} has been deprecated, {flag.deprecated}")


def _usage_name(flag: FlagSpec) -> str:
    start = f"  -{flag.shorthand}, --{flag.name}" if flag.shorthand else f"      --{flag.name}"
    return f"{start} {flag.kind.name}" if flag.kind.name else start


def _usage_help(flag: FlagSpec) -> str:
    empty: tuple[FlagValue, ...] = ("", False, 0, ())
    return flag.help if flag.default in empty else f"{flag.help} (default {flag.kind.show(flag.default)})"
