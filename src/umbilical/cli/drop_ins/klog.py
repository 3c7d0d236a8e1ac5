"""klog's flags of upstream's programs, and their effect on our log lines.

`v` below 5 logs one line per tunnel, 5 and above log details. All severities share one log file. `vmodule`,
`log-backtrace-at`, `one-output` and `skip-log-headers` are checked and have no effect.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from umbilical.cli.drop_ins import go_values
from umbilical.cli.drop_ins.go_values import ValueSyntaxError
from umbilical.cli.drop_ins.pflag import BOOL, STRING, FlagKind, FlagSet, FlagSpec, FlagValue
from umbilical.cli.log_setup import (
    STANDARD_ERROR,
    KlogForm,
    LineHandler,
    LogRoute,
    install,
    queued,
)
from umbilical.tunnel.log_queue import DescriptorSink, FileSink

DEFAULT_VERBOSITY: Final = 4
"""Default of upstream's programs."""
DEBUG_VERBOSITY: Final = 5
OPTIONS_VERBOSITY: Final = 1
"""From this verbosity on, the options are logged at start."""
_MEGABYTE: Final = 1024 * 1024
_SEVERITIES: Final = ("INFO", "WARNING", "ERROR", "FATAL")
_LEVELS: Final = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_MODULE_SYNTAX: Final = "syntax error: expect comma-separated list of filename=N"
_TRACE_SYNTAX: Final = "syntax error: expect file.go:234"


def _parse_flag_bool(text: str) -> bool:
    """Go's flag package, which klog uses, hides the error of strconv."""
    try:
        return go_values.parse_bool(text)
    except ValueSyntaxError:
        raise ValueSyntaxError("parse error") from None


def _parse_flag_uint(text: str) -> int:
    try:
        return go_values.parse_uint(text)
    except ValueSyntaxError as fault:
        reason = "value out of range" if "out of range" in str(fault) else "parse error"
        raise ValueSyntaxError(reason) from None


def _parse_verbosity(text: str) -> int:
    return go_values.parse_int(text, base=10, bits=32)


def _parse_severity(text: str) -> int:
    if text.upper() in _SEVERITIES:
        return _SEVERITIES.index(text.upper())
    return go_values.parse_int(text, base=10, bits=32)


def _parse_module_spec(text: str) -> str:
    for pattern in filter(None, text.split(",")):
        name, equals, level = pattern.partition("=")
        if not (name and equals and level) or "=" in level:
            raise ValueSyntaxError(_MODULE_SYNTAX)
        try:
            number = go_values.parse_int(level, base=10, bits=32)
        except ValueSyntaxError:
            raise ValueSyntaxError(_MODULE_SYNTAX) from None
        if number < 0:
            raise ValueSyntaxError("negative value for vmodule level")
    return text


def _parse_trace_location(text: str) -> str:
    if text == "":
        return ":0"
    file, colon, line = text.partition(":")
    if not colon or ":" in line or "." not in file:
        raise ValueSyntaxError(_TRACE_SYNTAX)
    try:
        number = go_values.parse_int(line, base=10)
    except ValueSyntaxError:
        raise ValueSyntaxError(_TRACE_SYNTAX) from None
    if number <= 0:
        raise ValueSyntaxError("negative or zero value for level")
    return text


def _plain(value: FlagValue) -> str:
    return str(value)


_SWITCH: Final = FlagKind("", _parse_flag_bool, BOOL.show, bare="true")
_SIZE: Final = FlagKind("uint", _parse_flag_uint, _plain)
_VERBOSITY: Final = FlagKind("Level", _parse_verbosity, _plain)
_SEVERITY: Final = FlagKind("severity", _parse_severity, _plain)
_MODULE_SPEC: Final = FlagKind("moduleSpec", _parse_module_spec, _plain)
_TRACE_LOCATION: Final = FlagKind("traceLocation", _parse_trace_location, _plain)

FLAGS: Final = (
    FlagSpec("v", _VERBOSITY, DEFAULT_VERBOSITY, "Log verbosity: below 5 one line per tunnel, from 5 on details."),
    FlagSpec("logtostderr", _SWITCH, True, "Log to standard error and not to a file."),
    FlagSpec("alsologtostderr", _SWITCH, False, "Log to standard error in addition to a file."),
    FlagSpec("alsologtostderrthreshold", _SEVERITY, 0, "Lowest severity that --alsologtostderr copies."),
    FlagSpec("stderrthreshold", _SEVERITY, 2, "Lowest severity that reaches standard error when logging to a file."),
    FlagSpec(
        "legacy-stderr-threshold-behavior",
        _SWITCH,
        True,
        "If false, --stderrthreshold also applies with --logtostderr.",
    ),
    FlagSpec("log-dir", STRING, "", "Directory of the log file, with --logtostderr=false."),
    FlagSpec("log-file", STRING, "", "Log file, with --logtostderr=false."),
    FlagSpec("log-file-max-size", _SIZE, 1800, "Maximum size of the log file in megabytes; 0 disables the limit."),
    FlagSpec("skip-headers", _SWITCH, False, "Log messages without time, process and source line."),
    FlagSpec("add-dir-header", _SWITCH, False, "Log the directory of the source file too."),
    FlagSpec("skip-log-headers", _SWITCH, False, "Accepted without effect: log files have no header."),
    FlagSpec("one-output", _SWITCH, False, "Accepted without effect: all severities share one file."),
    FlagSpec("vmodule", _MODULE_SPEC, "", "Accepted without effect."),
    FlagSpec("log-backtrace-at", _TRACE_LOCATION, ":0", "Accepted without effect."),
)


def install_klog(flags: FlagSet, program: str) -> LineHandler:
    """Set up logging by the flags. Raises OSError when the log file cannot be opened."""
    form = KlogForm(headers=not flags.switch("skip-headers"), directory=flags.switch("add-dir-header"))
    return install(form, _routes(flags, program, form), debug=flags.number("v") >= DEBUG_VERBOSITY)


def recipe(flags: FlagSet, program: str) -> tuple[str, ...]:
    """What `install_recipe` needs to do the same in another process."""
    given = {flag.name: flags.value(flag.name) for flag in FLAGS if flags.value(flag.name) != flag.default}
    return ("klog", program, *[f"--{name}={value!s}" for name, value in given.items()])


def install_recipe(program: str, arguments: Sequence[str]) -> LineHandler:
    flags = FlagSet(program, FLAGS)
    flags.parse(list(arguments))
    return install_klog(flags, program)


def _routes(flags: FlagSet, program: str, form: KlogForm) -> list[LogRoute]:
    standard_error = queued(DescriptorSink(STANDARD_ERROR), form)
    path = _log_file(flags, program)
    if flags.switch("logtostderr"):
        legacy = flags.switch("legacy-stderr-threshold-behavior")
        return [LogRoute(standard_error, logging.NOTSET if legacy else _level(flags.number("stderrthreshold")))]
    if path is None:
        return [LogRoute(standard_error)]
    threshold = "alsologtostderrthreshold" if flags.switch("alsologtostderr") else "stderrthreshold"
    file = queued(FileSink(path, flags.number("log-file-max-size") * _MEGABYTE), form)
    return [LogRoute(standard_error, _level(flags.number(threshold))), LogRoute(file)]


def _log_file(flags: FlagSet, program: str) -> Path | None:
    if flags.text("log-file"):
        return Path(flags.text("log-file"))
    return Path(flags.text("log-dir")) / f"{program}.log" if flags.text("log-dir") else None


def _level(severity: int) -> int:
    """For klog, detail lines have severity info, so severity 0 includes them."""
    if severity <= 0:
        return logging.NOTSET
    return _LEVELS[severity] if severity < len(_LEVELS) else logging.CRITICAL + 1
