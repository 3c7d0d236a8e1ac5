"""Kinds of values that our own commands take: durations, addresses, places to listen. Each is a plain function."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from umbilical.cli.drop_ins import go_values
from umbilical.tunnel.settings import ListenAddress, ServerAddress

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
