"""Options that several of our own commands share, the kinds of values they take, and checks of files they name."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli import log_setup
from umbilical.cli.drop_ins import go_values
from umbilical.fault import StartupError
from umbilical.tunnel.settings import Keepalive, ListenAddress, ServerAddress, TlsFiles

_LAST_PORT: Final = 65535
_UNIX: Final = "unix:"

FILE: Final = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class SocketPath:
    path: Path


def duration(text: str) -> float:
    """Read `500ms`, `10s` or `1h30m`; return seconds."""
    try:
        nanoseconds = go_values.parse_duration(text)
    except go_values.ValueSyntaxError:
        raise click.BadParameter(f"{text!r} is no duration such as 500ms, 10s or 1h30m") from None
    if nanoseconds < 0:
        raise click.BadParameter(f"{text!r} is negative")
    return go_values.duration_seconds(nanoseconds)


def address(text: str) -> ListenAddress:
    """Read `HOST:PORT`, `[V6]:PORT` or, with the host left out, `:PORT`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdigit()) or (":" in host and not bracketed):
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    if len(port) > len(str(_LAST_PORT)) or int(port) > _LAST_PORT:
        raise click.BadParameter(f"port {port} is past {_LAST_PORT}")
    return ListenAddress(host[1:-1] if bracketed else host, int(port))


def server_address(text: str) -> ServerAddress:
    """Read an address to connect to: nothing may be left out."""
    place = address(text)
    if not place.host or not place.port:
        raise click.BadParameter(f"{text!r} names no host or no port")
    return ServerAddress(place.host, place.port)


def listen_place(text: str) -> SocketPath | ListenAddress:
    """Read `unix:PATH` or an address."""
    if not text.startswith(_UNIX):
        return address(text)
    if text == _UNIX:
        raise click.BadParameter("unix: needs a path")
    return SocketPath(Path(text[len(_UNIX) :]))


Command = Callable[..., Any]
PING_AFTER: Final = "31s"
"""The shortest silence after which grpc-go's servers tolerate a ping (30 s), with a second to spare."""
PING_ANSWER: Final = "10s"

LOGGING: Final = (
    click.option(
        "--log-format",
        type=click.Choice(["text", "json", "klog"]),
        default="text",
        show_default=True,
        help="Log lines.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["info", "debug"]),
        default="info",
        show_default=True,
        help="info is one line per tunnel.",
    ),
)
_SHARED: Final = (
    click.option(
        "--keepalive",
        type=duration,
        default=PING_AFTER,
        show_default=True,
        help="Ping the other side after this silence.",
    ),
    click.option(
        "--keepalive-answer",
        type=duration,
        default=PING_ANSWER,
        show_default=True,
        help="Give a connection up when a ping stays unanswered this long.",
    ),
    click.option("--kubeconfig", type=FILE, help="How to reach the apiserver; without it, as a pod in the cluster."),
    click.option("--lease-namespace", default="kube-system", show_default=True, help="Namespace of servers' leases."),
    click.option("--profiling", is_flag=True, help="Serve profiles on the admin address."),
    *LOGGING,
)


def shared_options(command: Command) -> Command:
    for option in reversed(_SHARED):
        command = option(command)
    return command


def start_logging(log_format: str, log_level: str) -> None:
    log_setup.install_native(log_format, debug=log_level == "debug")


def keepalive(options: dict[str, Any]) -> Keepalive:
    return Keepalive(options["keepalive"], options["keepalive_answer"])


def tls_files(prefix: str, certificate: Path | None, key: Path | None, authority: Path | None) -> TlsFiles:
    """Check what can be checked before anything starts: pairs are whole, files can be read."""
    if (certificate is None) != (key is None):
        given, missing = ("key", "cert") if certificate is None else ("cert", "key")
        raise StartupError(
            "UMB003",
            f"--{prefix}{given} without --{prefix}{missing}",
            "a certificate and its key are used together or not at all",
            f"add --{prefix}{missing} FILE",
        )
    for path in (certificate, key, authority):
        check_readable(path)
    return TlsFiles(certificate, key, authority)


def check_readable(path: Path | None) -> None:
    if path is None:
        return
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise StartupError("UMB002", f"cannot read {path}", why, f"look at it: ls -l {path}") from None


def missing_option(command: str, option: str, why: str) -> StartupError:
    return StartupError("UMB001", f"{command} needs {option}", why, f"umbilical {command} --help")
