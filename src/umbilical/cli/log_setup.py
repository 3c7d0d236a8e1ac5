"""Format and destination of log lines: klog's format for the drop-in programs, text or JSON for our own commands.

Each record is one `write` to a file descriptor. The logger of tunnels skips building a record and finding its caller,
which is most of the cost of a line.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from umbilical.record import Record

ROOT_LOGGER: Final = "umbilical"
TUNNEL_LOGGER: Final = "umbilical.tunnels"
"""Logger of the line per tunnel, at info."""
STANDARD_ERROR: Final = 2
_SEVERITY_LETTERS: Final = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}
_FATAL_LETTER: Final = "F"


class LineForm(Protocol):
    def record_line(self, record: logging.LogRecord) -> str: ...

    def tunnel_line(self, moment: float, message: str) -> str:
        """Format an info line of the tunnel logger, without a record."""


class Sink(Protocol):
    def write(self, line: bytes) -> None:
        """Write one line. Never raises: a full disk must not end a tunnel."""


class DescriptorSink:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: bytes) -> None:
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                line = line[written:]
                written = os.write(self._descriptor, line)
        except OSError:
            return  # there is no other place to report it


class FileSink(DescriptorSink):
    """A log file that is truncated at its maximum size, as klog does."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        super().__init__(self._file)
        self._max_bytes = max_bytes
        self._size = os.fstat(self._file).st_size

    def write(self, line: bytes) -> None:
        self._size += len(line)
        if 0 < self._max_bytes < self._size:
            os.ftruncate(self._file, 0)
            self._size = len(line)
        super().write(line)

    def close(self) -> None:
        os.close(self._file)


class LogRoute(Record):
    sink: Sink
    lowest_level: int = logging.NOTSET


class LineHandler(logging.Handler):
    """Formats a record once and writes it to every sink of its level."""

    def __init__(self, form: LineForm, routes: Sequence[LogRoute]) -> None:
        super().__init__()
        self._form = form
        self._routes = tuple(routes)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._form.record_line(record)
        except Exception:
            self.handleError(record)
            return
        self._write(record.levelno, line)

    def emit_tunnel_line(self, message: str) -> None:
        self._write(logging.INFO, self._form.tunnel_line(time.time(), message))

    def _write(self, level: int, line: str) -> None:
        data = (line + "\n").encode("utf-8", "backslashreplace")
        for route in self._routes:
            if level >= route.lowest_level:
                route.sink.write(data)


class TunnelLogger(logging.Logger):
    """Writes plain info lines directly to the installed handler; everything else as usual."""

    handler: LineHandler | None = None

    def info(self, msg: object, *args: object, **options: Any) -> None:
        handler = self.handler
        if handler is None or options:
            super().info(msg, *args, **options)
        elif self.isEnabledFor(logging.INFO):
            handler.emit_tunnel_line(str(msg) % args if args else str(msg))


class _Clock:
    """Renders the part of a timestamp above the second once per second."""

    def __init__(self, layout: str, to_fields: Callable[[float], time.struct_time]) -> None:
        self._layout = layout
        self._to_fields = to_fields
        self._second = -1
        self._text = ""

    def text(self, moment: float) -> str:
        second = int(moment)
        if second != self._second:
            self._second = second
            self._text = time.strftime(self._layout, self._to_fields(second))
        return self._text


def next_step(record: logging.LogRecord) -> str:
    """Return the next step, appended to messages of our own commands."""
    fields = getattr(record, "fields", None)
    remedy = fields.get("next") if isinstance(fields, dict) else None
    return f"; next: {remedy}" if remedy else ""


def message_of(record: logging.LogRecord, *, remedies: bool) -> str:
    message = record.getMessage()
    if remedies:
        message += next_step(record)
    if record.exc_info:
        return message + "\n" + logging.Formatter().formatException(record.exc_info)
    return message


class KlogForm:
    """`I1115 10:51:30.123456    4711 server.py:12] message`."""

    def __init__(self, *, headers: bool = True, directory: bool = False, remedies: bool = False) -> None:
        self._headers = headers
        self._directory = directory
        self._remedies = remedies
        self._clock = _Clock("%m%d %H:%M:%S", time.localtime)
        self._process = f"{os.getpid():7d}"

    def record_line(self, record: logging.LogRecord) -> str:
        message = message_of(record, remedies=self._remedies)
        if not self._headers:
            return message
        letter = _SEVERITY_LETTERS.get(record.levelno, _FATAL_LETTER)
        moment = record.created
        micros = int(moment % 1 * 1_000_000)
        place = "/".join(record.pathname.split("/")[-2:]) if self._directory else record.filename
        return f"{letter}{self._clock.text(moment)}.{micros:06d} {self._process} {place}:{record.lineno}] {message}"

    def tunnel_line(self, moment: float, message: str) -> str:
        if not self._headers:
            return message
        micros = int(moment % 1 * 1_000_000)
        return f"I{self._clock.text(moment)}.{micros:06d} {self._process} tunnels:1] {message}"


class TextForm:
    """`2026-11-15T10:51:30.123Z INFO  server: message`."""

    def __init__(self) -> None:
        self._clock = _Clock("%Y-%m-%dT%H:%M:%S", time.gmtime)

    def record_line(self, record: logging.LogRecord) -> str:
        message = message_of(record, remedies=True)
        return self._line(record.created, record.levelname, record.name.rpartition(".")[2], message)

    def tunnel_line(self, moment: float, message: str) -> str:
        return self._line(moment, "INFO", "tunnels", message)

    def _line(self, moment: float, level: str, room: str, message: str) -> str:
        return f"{self._clock.text(moment)}.{int(moment % 1 * 1000):03d}Z {level:<5} {room}: {message}"


class JsonForm:
    """One JSON object per line; `fields` of a record become members."""

    def __init__(self) -> None:
        from json import dumps  # not needed by the drop-in programs, which start faster without it

        self._dumps = dumps
        self._clock = _Clock("%Y-%m-%dT%H:%M:%S", time.gmtime)

    def record_line(self, record: logging.LogRecord) -> str:
        line = self._members(record.created, record.levelname.lower(), record.name, record.getMessage())
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= {name: value for name, value in fields.items() if name not in line}
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        return self._dumps(line, default=str)

    def tunnel_line(self, moment: float, message: str) -> str:
        return self._dumps(self._members(moment, "info", TUNNEL_LOGGER, message))

    def _members(self, moment: float, level: str, logger: str, message: str) -> dict[str, object]:
        stamp = f"{self._clock.text(moment)}.{int(moment % 1 * 1000):03d}Z"
        return {"time": stamp, "level": level, "logger": logger, "message": message}


NATIVE_FORMS: Final[dict[str, Callable[[], LineForm]]] = {
    "text": TextForm,
    "json": JsonForm,
    "klog": lambda: KlogForm(remedies=True),
}


def install(form: LineForm, routes: Sequence[LogRoute], *, debug: bool) -> LineHandler:
    """Make our loggers write to `routes` only; `uninstall` reverts it."""
    handler = LineHandler(form, routes)
    root = logging.getLogger(ROOT_LOGGER)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    _attach_to_tunnel_logger(handler)
    return handler


def uninstall(handler: LineHandler) -> None:
    root = logging.getLogger(ROOT_LOGGER)
    root.removeHandler(handler)
    root.propagate = True
    root.setLevel(logging.NOTSET)
    _attach_to_tunnel_logger(None)


def install_native(form: str, *, debug: bool) -> LineHandler:
    return install(NATIVE_FORMS[form](), [LogRoute(DescriptorSink(STANDARD_ERROR))], debug=debug)


def _attach_to_tunnel_logger(handler: LineHandler | None) -> None:
    """Connect the tunnel logger. One created before this module was loaded remains an ordinary, slower logger."""
    usual = logging.getLoggerClass()
    logging.setLoggerClass(TunnelLogger)
    try:
        logger = logging.getLogger(TUNNEL_LOGGER)
    finally:
        logging.setLoggerClass(usual)
    if isinstance(logger, TunnelLogger):
        logger.handler = handler
