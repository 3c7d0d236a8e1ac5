"""Format and destination of log lines: klog's format for the drop-in programs, text or JSON for our own commands.

Each record is one line, except for a trace below it, whose lines are indented: text of peers is escaped here, for all
formats. The logger of tunnels skips building a record and finding its caller, which is most of the cost of a line.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from umbilical.record import Record
from umbilical.tunnel.causes import FailureCause
from umbilical.tunnel.log_queue import DescriptorSink, LogQueue, Sink

ROOT_LOGGER: Final = "umbilical"
TUNNEL_LOGGER: Final = "umbilical.tunnels"
"""Logger of the line per tunnel, at info."""
ASYNCIO_LOGGER: Final = "asyncio"
"""Errors in callbacks of the loop. Without a handler, Python would write them to standard error and block there."""
STANDARD_ERROR: Final = 2
_SEVERITY_LETTERS: Final = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}
_FATAL_LETTER: Final = "F"


class LineForm(Protocol):
    def record_line(self, record: logging.LogRecord) -> str: ...

    def tunnel_line(self, moment: float, message: str) -> str:
        """Format an info line of the tunnel logger, without a record."""


class LogRoute(Record):
    sink: Sink
    lowest_level: int = logging.NOTSET


class LineHandler(logging.Handler):
    """Formats a record once and writes it to every sink of its level."""

    def __init__(self, form: LineForm, routes: Sequence[LogRoute]) -> None:
        super().__init__()
        self._form = form
        self._routes = tuple(routes)

    def flush(self) -> None:
        """Also called at the exit, by `logging`."""
        for route in self._routes:
            route.sink.flush()

    def close(self) -> None:
        for route in self._routes:
            route.sink.close()
        self._routes = ()
        super().close()

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
        data = line_bytes(line)
        for route in self._routes:
            if level >= route.lowest_level:
                route.sink.write(data)


def line_bytes(line: str) -> bytes:
    return (line + "\n").encode("utf-8", "backslashreplace")


def queued(sink: Sink, form: LineForm) -> LogQueue:
    """A sink that never blocks; lines that it drops are counted in a line of this form."""
    return LogQueue(sink, partial(_losses_line, form))


def _losses_line(form: LineForm, count: int) -> bytes:
    cause = FailureCause("UMB430", f"{count:,} log lines were dropped: nobody read them in time")
    name = f"{ROOT_LOGGER}.tunnel.log_queue"
    record = logging.LogRecord(name, logging.WARNING, "log_queue.py", 1, f"{cause.code} {cause.text}", None, None)
    vars(record).update(cause.fields)
    return line_bytes(form.record_line(record))


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


def one_line(text: str) -> str:
    r"""Escape what is not printable, as in a Python literal (`\n`, `\x1b`, `\u202e`), and the backslash itself.

    Different texts stay different, so that a reader can tell an escaped line break from the two characters.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join([_shown(character) for character in text])


def _shown(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode("ascii")


def next_step(record: logging.LogRecord) -> str:
    """Return the next step, appended to messages of our own commands."""
    fields = getattr(record, "fields", None)
    remedy = fields.get("next") if isinstance(fields, dict) else None
    return f"; next: {remedy}" if remedy else ""


def message_of(record: logging.LogRecord, *, remedies: bool) -> str:
    message = one_line(record.getMessage() + next_step(record) if remedies else record.getMessage())
    return message + _indented(_trace(record)) if record.exc_info else message


def _trace(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


def _indented(trace: str) -> str:
    """The text of an exception may be a peer's: its lines must not look like lines of the log."""
    return "".join([f"\n    {one_line(line)}" for line in trace.split("\n")])


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
        message = one_line(message)
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
        return self._line(moment, "INFO", "tunnels", one_line(message))

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
            line["exception"] = _trace(record)
        return self._object(line)

    def tunnel_line(self, moment: float, message: str) -> str:
        return self._object(self._members(moment, "info", TUNNEL_LOGGER, message))

    def _object(self, line: dict[str, object]) -> str:
        """JSON leaves DEL as it is, alone of all control characters."""
        return self._dumps(line, default=str).replace("\x7f", "\\u007f")

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
    for former in root.handlers:
        former.flush()
        former.close()
    for logger in (root, logging.getLogger(ASYNCIO_LOGGER)):
        logger.handlers[:] = [handler]
        logger.propagate = False
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    _attach_to_tunnel_logger(handler)
    return handler


def uninstall(handler: LineHandler) -> None:
    root = logging.getLogger(ROOT_LOGGER)
    for logger in (root, logging.getLogger(ASYNCIO_LOGGER)):
        logger.removeHandler(handler)
        logger.propagate = True
    root.setLevel(logging.NOTSET)
    handler.flush()
    handler.close()
    _attach_to_tunnel_logger(None)


def install_native(form: str, *, debug: bool) -> LineHandler:
    line_form = NATIVE_FORMS[form]()
    return install(line_form, [LogRoute(queued(DescriptorSink(STANDARD_ERROR), line_form))], debug=debug)


def flush() -> None:
    """Wait for lines that were logged, before text is printed beside them."""
    for handler in logging.getLogger(ROOT_LOGGER).handlers:
        handler.flush()


def _attach_to_tunnel_logger(handler: LineHandler | None) -> None:
    """Connect the tunnel logger, which may exist already: modules that write to it are often loaded first."""
    logger: logging.Logger = logging.getLogger(TUNNEL_LOGGER)
    logger.__class__ = TunnelLogger
    assert isinstance(logger, TunnelLogger)
    logger.handler = handler
