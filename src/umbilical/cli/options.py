"""Options of our own commands: made from the settings tables of the daemons; parsers of values; checks of files."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from umbilical.cli import log_setup
from umbilical.cli.drop_ins import go_values
from umbilical.cli.drop_ins.drop_in import random_id
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.fault import StartupError
from umbilical.konnectivity.metadata import MetadataRefused
from umbilical.tunnel.setting_rows import REPEATABLE, Setting, Table, Value
from umbilical.tunnel.settings import ListenAddress, ServerAddress, TlsFiles, UnixFrontend
from umbilical.tunnel.status.routes import is_local, shown_place

_LAST_PORT: Final = 65535
_UNIX: Final = "unix:"
_UNITS: Final = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_MOST_DIGITS: Final = 15

Command = Callable[..., Any]
Parsed = TypeVar("Parsed")
FILE: Final = click.Path(path_type=Path, dir_okay=False)
ARCHIVE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


_KUBERNETES_VERSION: Final = re.compile(r"v?\d{1,3}\.\d{1,3}(\.\d{1,3}(-[.0-9a-z]{1,20})?)?")


@dataclass(frozen=True)
class SocketPath:
    path: Path


def kubernetes_version_option(command: Command) -> Command:
    """Add --kubernetes-version."""
    text = "Version of Kubernetes, as 1.36 or 1.36.3, of those in the cache; default: that of `make peers`."
    return click.option("--kubernetes-version", metavar="VERSION", callback=_kubernetes_version, help=text)(command)


def _kubernetes_version(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _KUBERNETES_VERSION.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a version such as 1.36 or 1.36.3")
    return text


def duration(text: str) -> float:
    """Parse `500ms`, `10s` or `1h30m`; return seconds."""
    try:
        nanoseconds = go_values.parse_duration(text)
    except go_values.ValueSyntaxError:
        raise click.BadParameter(f"{text!r} is not a duration such as 500ms, 10s or 1h30m") from None
    if nanoseconds < 0:
        raise click.BadParameter(f"{text!r} is negative")
    return go_values.duration_seconds(nanoseconds)


def size(text: str) -> int:
    """Parse bytes such as `512Mi`, `1Gi` or `1000000`; 0 for `auto`."""
    if text == "auto":
        return 0
    digits = text.rstrip("KMGi")
    unit = _UNITS.get(text[len(digits) :], 0)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MOST_DIGITS or not int(digits) * unit:
        raise click.BadParameter(f"{text!r} is not a size such as 512Mi, 2Gi or auto")
    return int(digits) * unit


def address(text: str) -> ListenAddress:
    """Parse `HOST:PORT`, `[V6]:PORT` or, for every interface, `:PORT`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdigit()) or (":" in host and not bracketed):
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    if len(port) > len(str(_LAST_PORT)) or int(port) > _LAST_PORT:
        raise click.BadParameter(f"port {port} is larger than {_LAST_PORT}")
    return ListenAddress(host[1:-1] if bracketed else host, int(port))


def server_address(text: str) -> ServerAddress:
    """Parse an address to connect to; host and port are required."""
    place = address(text)
    if not place.host or not place.port:
        raise click.BadParameter(f"{text!r} has no host or no port")
    return ServerAddress(place.host, place.port)


def listen_place(text: str) -> SocketPath | ListenAddress:
    """Parse `unix:PATH` or an address."""
    if not text.startswith(_UNIX):
        return address(text)
    if text == _UNIX:
        raise click.BadParameter("unix: needs a path")
    return SocketPath(Path(text[len(_UNIX) :]))


def admin_values(options: dict[str, Any], *, may_come_later: bool) -> dict[str, Any]:
    """Return the settings of a daemon's admin address, with its rules checked."""
    listen, token = options["admin"], options["status_token_file"]
    if isinstance(listen, SocketPath):
        listen = UnixFrontend(listen.path)
    tls = tls_files("admin-", options["admin_cert"], options["admin_key"], None, may_come_later=may_come_later)
    if token is not None and tls.certificate is None and not is_local(listen):
        why = f"{shown_place(listen)} is neither loopback nor a Unix socket, and a token must not travel without TLS"
        remedy = "add --admin-cert and --admin-key, or use --admin unix:PATH"
        raise StartupError("UMB210", "--status-token-file without TLS", why, remedy)
    if not may_come_later:
        check_readable(token)
    return {"admin_listen": listen, "admin_tls": tls}


def server_place(text: str) -> UnixServer | TcpServer:
    """Parse `unix:PATH` or `HOST:PORT` of a server to connect to."""
    place = listen_place(text)
    if isinstance(place, SocketPath):
        return UnixServer(place.path)
    server = server_address(text)
    return TcpServer(server.host, server.port)


def named(server: UnixServer | TcpServer, name: str) -> UnixServer | TcpServer:
    """Return the server with the name that its certificate is checked for."""
    return TcpServer(server.host, server.port, name) if isinstance(server, TcpServer) else server


_TEXTS: Final = (Value.TEXT, Value.SECRET, Value.SELECTOR)
_TYPES: Final[dict[Value, tuple[Any, str | None]]] = {
    **dict.fromkeys((*_TEXTS, Value.ID, Value.ITEMS), (str, None)),
    **dict.fromkeys((Value.FILE, Value.OUTPUT), (FILE, None)),
    Value.COUNT: (click.IntRange(min=1), None),
    Value.LIMIT: (click.IntRange(min=0), None),
    Value.FRACTION: (click.FloatRange(min=0), None),
    Value.SECONDS: (duration, None),
    Value.SIZE: (size, "SIZE"),
    **dict.fromkeys((Value.LISTEN, Value.LISTENERS), (address, "HOST:PORT")),
    **dict.fromkeys((Value.SERVER, Value.SERVERS), (server_address, "HOST:PORT")),
    Value.PLACE: (listen_place, "unix:PATH|HOST:PORT"),
    Value.TARGETS: (server_place, "HOST:PORT|unix:PATH"),
}
"""click type and metavar of each kind of value."""


def settings_options(table: Table) -> Callable[[Command], Command]:
    """Add the native options of a table, required ones first. Settings may share an option."""
    rows = {row.native: row for row in reversed(table) if row.native}.values()
    ordered = sorted(rows, key=lambda row: row.required)  # click shows the last decorator first

    def decorate(command: Command) -> Command:
        for row in ordered:
            command = _option(row)(command)
        return command

    return decorate


def _option(row: Setting) -> Callable[[Command], Command]:
    if row.kind is Value.SWITCH:
        return click.option(row.native, is_flag=True, help=row.help)
    kind, metavar = _TYPES[Value.PLACE if row.may_be_unix else row.kind]
    many = row.kind in REPEATABLE
    # For click, no default and a default of None are different.
    has_default = (row.kind in _TEXTS and not row.choices) or (row.default and not many)
    default: dict[str, Any] = {"default": row.default} if has_default else {}
    return click.option(
        row.native,
        row.parameter,
        type=click.Choice(row.choices) if row.choices else kind,
        metavar=row.metavar or metavar,
        # The command itself adds the default of a repeatable option, to see whether the option was given.
        show_default=(many and row.default) or bool(row.default),
        multiple=many,
        required=row.required,
        envvar=row.environment if row.kind is Value.ID else None,
        help=row.help,
        **default,
    )


def native_values(table: Table, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options' values by the paths of their settings; a missing id is generated here."""
    rows = [row for row in table if row.native and row.field]
    drawn = {row.field: random_id() for row in rows if row.kind is Value.ID and not options[row.parameter]}
    return {row.field: options[row.parameter] for row in rows} | drawn


def start_logging(log_format: str, log_level: str) -> None:
    log_setup.install_native(log_format, debug=log_level == "debug")


def tls_files(
    prefix: str,
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    *,
    revoked: Path | None = None,
    may_come_later: bool = False,
) -> TlsFiles:
    """Check before the start that certificate and key are both given and that files are readable."""
    if (certificate is None) != (key is None):
        given, missing = ("key", "cert") if certificate is None else ("cert", "key")
        raise StartupError(
            "UMB003",
            f"--{prefix}{given} without --{prefix}{missing}",
            "a certificate and its key must be given together",
            f"add --{prefix}{missing} FILE",
        )
    if revoked is not None and authority is None:
        why = "revocation lists are of a CA, and without one no certificate is asked for"
        raise StartupError("UMB003", f"--{prefix}crl without --{prefix}ca", why, f"add --{prefix}ca FILE")
    for path in () if may_come_later else (certificate, key, authority, revoked):
        check_readable(path)
    return TlsFiles(certificate, key, authority, revoked)


def check_readable(path: Path | None) -> None:
    if path is None:
        return
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise StartupError("UMB002", f"cannot read {path}", why, f"check it: ls -l {path}") from None


def parsed(option: str, read: Callable[[str], Parsed], text: str, remedy: str) -> Parsed:
    """Parse the text of an option. Raises StartupError with the parser's message."""
    try:
        return read(text)
    except (ValueError, MetadataRefused) as fault:
        raise StartupError("UMB001", f"{option} {text!r} is not valid", str(fault), remedy) from None


def missing_option(command: str, option: str, why: str) -> StartupError:
    return StartupError("UMB001", f"{command} needs {option}", why, f"umbilical {command} --help")
