"""What the drop-in programs share: flags from the settings tables, checks with upstream's texts, start and failure.

A failure prints `Error: …` and the usage on standard error, then the same text as a klog line; the exit status is 1.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from umbilical.cli import log_setup
from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.go_values import parse_duration, quote
from umbilical.cli.drop_ins.pflag import (
    BOOL,
    DURATION,
    FLOAT,
    HELP,
    INT,
    SECRET,
    SELECTOR,
    STRING,
    STRING_SLICE,
    UINT32,
    FlagError,
    FlagSet,
    FlagSpec,
    FlagValue,
)
from umbilical.fault import StartupError
from umbilical.record import Record
from umbilical.tunnel.setting_rows import Setting, Table, Upstream, Value
from umbilical.tunnel.settings import ListenAddress, ServerAddress

_KINDS: Final = {
    **dict.fromkeys((Value.TEXT, Value.ID, Value.FILE), STRING),
    Value.SECRET: SECRET,
    Value.SELECTOR: SELECTOR,
    Value.SWITCH: BOOL,
    Value.COUNT: INT,
    Value.PORT: UINT32,
    Value.FRACTION: FLOAT,
    Value.SECONDS: DURATION,
    Value.ITEMS: STRING_SLICE,
}
_PROGRAMS_OWN: Final = (Value.PLACE, Value.TARGETS, Value.LISTENERS)
"""The program makes these values from several flags."""


class OptionRefused(Exception):
    """An option or combination of options is not valid; the message is upstream's, without its prefix."""


def flags_of(table: Table) -> tuple[FlagSpec, ...]:
    """Return upstream's flags in the table's order; an id is generated here unless the environment sets it."""
    return tuple(_flag(row, flag) for row in table for flag in row.flags)


def _flag(row: Setting, flag: Upstream) -> FlagSpec:
    kind = flag.kind or row.kind
    default: FlagValue = row.default if flag.default is None else flag.default
    match kind:
        case Value.ID:
            default = os.environ.get(row.environment) or random_id()
        case Value.SWITCH:
            default = default == "true"
        case Value.COUNT | Value.PORT:
            default = int(str(default))
        case Value.FRACTION:
            default = float(str(default))
        case Value.SECONDS:
            default = parse_duration(str(default))
        case Value.ITEMS:
            default = tuple(str(default).split(",")) if default else ()
    help_text = flag.help or row.help
    return FlagSpec(flag.name, _KINDS[kind], default, help_text, deprecated=flag.deprecated, alias_of=flag.alias_of)


def values_of(table: Table, flags: FlagSet) -> dict[str, Any]:
    """Return the values of the flags by the paths of their settings."""
    rows = (row for row in table if row.field and row.flags and row.kind not in _PROGRAMS_OWN)
    return {row.field: _value(row, flags) for row in rows}


def _value(row: Setting, flags: FlagSet) -> object:
    names = {flag.kind or row.kind: flag.name for flag in reversed(row.flags)}
    if Value.COUNT in names and Value.TEXT in names:
        host, port = flags.text(names[Value.TEXT]), flags.number(names[Value.COUNT])
        return ListenAddress(host, port) if row.kind is Value.LISTEN else (ServerAddress(host, port),)
    (kind, name), *_ = names.items()
    if kind is Value.FILE:
        return optional_path(flags.text(name))
    return flags.seconds(name) if kind is Value.SECONDS else flags.value(name)


def stat_fault(path: str) -> str | None:
    """Return Go's text for a missing file; None for any other state."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return f"stat {path}: no such file or directory"
    except OSError:
        return None  # upstream accepts it here and fails when it reads the file
    return None


def check_file(what: str, path: str) -> None:
    if path and (fault := stat_fault(path)):
        raise OptionRefused(f"error checking {what} {path}, got {fault}")


def check_pair(owner: str, certificate: str, key: str) -> None:
    """Check that certificate and key are both given; the key is checked first."""
    check_file(f"{owner} key", key)
    if key and not certificate:
        raise OptionRefused(f"cannot have {owner} cert empty when {owner} key is set to {quote(key)}")
    check_file(f"{owner} cert", certificate)
    if certificate and not key:
        raise OptionRefused(f"cannot have {owner} key empty when {owner} cert is set to {quote(certificate)}")


def check_channel_size(flags: FlagSet) -> None:
    size = flags.number("xfr-channel-size")
    if size <= 0:
        raise OptionRefused(f"channel size {size} must be greater than 0")


def check_profiling(flags: FlagSet) -> None:
    if flags.switch("enable-contention-profiling") and not flags.switch("enable-profiling"):
        raise OptionRefused("if --enable-contention-profiling is set, --enable-profiling must also be set")


def optional_path(text: str) -> Path | None:
    return Path(text) if text else None


def random_id() -> str:
    """Return a random UUID (version 4), without the 25 ms that importing `uuid` takes."""
    bits = int.from_bytes(os.urandom(16), "big")
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


FAILURE: Final = 1
_log: Final = logging.getLogger("umbilical.cli.drop_ins.drop_in")


class DropIn(Record):
    program: str
    command: str
    """The program's name in upstream's usage."""
    about: str
    refusal_prefix: str
    flags: Callable[[], Sequence[FlagSpec]]
    check: Callable[[FlagSet], None]
    start: Callable[[FlagSet], int]
    """Run until a signal; returns the exit status, raises `StartupError` or `OptionRefused`."""


def run(drop_in: DropIn, arguments: Sequence[str]) -> int:
    flags = FlagSet(drop_in.command, drop_in.flags(), klog.FLAGS)
    try:
        flags.parse(arguments)
    except FlagError as fault:
        return _fail(drop_in, flags, str(fault))
    for notice in flags.notices:
        print(notice, file=sys.stderr)
    if flags.switch(HELP):
        print(drop_in.about, _usage(drop_in, flags), sep="\n\n", end="")
        return 0
    return _start(drop_in, flags)


def _start(drop_in: DropIn, flags: FlagSet) -> int:
    try:
        klog.install_klog(flags, drop_in.program)
        _list_options(drop_in, flags)
        _check(drop_in, flags)
        return drop_in.start(flags)
    except (OptionRefused, OSError) as fault:
        return _fail(drop_in, flags, str(fault))
    except StartupError as fault:
        return _fail(drop_in, flags, f"{fault.what}: {fault.why}")
    except KeyboardInterrupt:
        return FAILURE


def _check(drop_in: DropIn, flags: FlagSet) -> None:
    try:
        drop_in.check(flags)
    except OptionRefused as fault:
        raise OptionRefused(drop_in.refusal_prefix + str(fault)) from None


def _list_options(drop_in: DropIn, flags: FlagSet) -> None:
    if flags.number("v") < klog.OPTIONS_VERBOSITY:
        return
    for flag in drop_in.flags():
        if not flag.deprecated and not flag.alias_of:
            _log.info("--%s set to %s", flag.name, flags.shown(flag.name))


def _usage(drop_in: DropIn, flags: FlagSet) -> str:
    return f"Usage:\n  {drop_in.command} [flags]\n\nFlags:\n{flags.usage()}"


def _fail(drop_in: DropIn, flags: FlagSet, text: str) -> int:
    log_setup.flush()
    print(f"Error: {text}", _usage(drop_in, flags), sep="\n", file=sys.stderr, flush=True)
    try:
        klog.install_klog(flags, drop_in.program)
    except OSError as fault:
        print(f"log: {fault}", file=sys.stderr)
    _log.error("error: %s", text)
    return FAILURE
