"""What `proxy-server` and `proxy-agent` share: read flags, list them, check them, start; and fail as upstream does.

A failure is `Error: …` and the usage on standard error, then the same text as a klog line, and exit status 1.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.pflag import HELP, Flag, FlagError, FlagSet
from umbilical.cli.option_checks import OptionRefused
from umbilical.fault import StartupError
from umbilical.record import Record

FAILURE: Final = 1
_log: Final = logging.getLogger("umbilical.cli.drop_ins.drop_in")


class DropIn(Record):
    program: str
    command: str
    """What upstream's usage calls the program."""
    about: str
    refusal_prefix: str
    flags: Callable[[], Sequence[Flag]]
    check: Callable[[FlagSet], None]
    start: Callable[[FlagSet], int]
    """Run until told to stop; returns the exit status, raises `StartupError` or `OptionRefused`."""


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
    print(f"Error: {text}", _usage(drop_in, flags), sep="\n", file=sys.stderr, flush=True)
    try:
        klog.install_klog(flags, drop_in.program)
    except OSError as fault:
        print(f"log: {fault}", file=sys.stderr)
    _log.error("error: %s", text)
    return FAILURE
