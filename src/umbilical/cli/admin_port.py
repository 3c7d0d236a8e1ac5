"""The client's side of an admin port: where it is, and a request with the token, over TCP, TLS or a Unix socket."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, Command, server_place
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.fault import Fault
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.tunnel.settings import TlsFiles

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection, HTTPResponse

Place = TcpServer | UnixServer
DEFAULT_PLACES: Final = (TcpServer("127.0.0.1", 8095), TcpServer("127.0.0.1", 8094))
"""Admin addresses of a server and of an agent on this machine; one of them is enough."""
ANSWER_SECONDS: Final = 10.0
LONGEST_REFUSAL: Final = 64 * 1024


def place_options(command: Command) -> Command:
    """Add --admin, --ca and --token-file."""
    options = (
        click.option(
            "--admin",
            "places",
            type=server_place,
            multiple=True,
            metavar="HOST:PORT|unix:PATH",
            help="Admin address of a server or an agent; repeatable. Default: 127.0.0.1:8095 and 127.0.0.1:8094.",
        ),
        click.option("--ca", type=FILE, help="CA of the certificate of --admin, which is then asked over HTTPS."),
        click.option("--token-file", type=FILE, help="File with the bearer token of --status-token-file."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def shown(place: Place) -> str:
    return f"unix:{place.path}" if isinstance(place, UnixServer) else join_host_port(place.host, place.port)


class AdminPorts:
    """Asks admin ports with one CA and one token."""

    def __init__(self, authority: Path | None, token: Path | None) -> None:
        self._token: Final = token
        self._tls: Final = None if authority is None else _context(authority)

    def get(self, place: Place, path: str) -> "tuple[HTTPConnection, HTTPResponse]":
        """Return a response with status 200, whose body is still to be read. Raises Fault."""
        from http.client import HTTPException

        connection = _connection(place, self._tls)
        try:
            connection.request("GET", path, headers=self._headers())
            response = connection.getresponse()
            body = b"" if response.status == 200 else response.read(LONGEST_REFUSAL)
        except (OSError, ValueError, HTTPException) as error:
            connection.close()
            raise unanswered(place, error) from None
        if response.status != 200:
            connection.close()
            raise _refused(place, response.status, body.decode("utf-8", "replace"))
        return connection, response

    def _headers(self) -> dict[str, str]:
        headers = {"Host": "localhost"} if self._tls is None else {}
        if self._token is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token.read_text(encoding='utf-8').strip()}"
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not text"
                raise Fault("UMB002", f"cannot read {self._token}", why, f"check it: ls -l {self._token}") from None
        return headers


def _context(authority: Path) -> "ssl.SSLContext":
    from umbilical.tunnel.tls import connecting_context

    return connecting_context(TlsFiles(authority=authority), ("http/1.1",), "status")


def _connection(place: Place, tls: "ssl.SSLContext | None") -> "HTTPConnection":
    import socket
    from http.client import HTTPConnection, HTTPSConnection

    if isinstance(place, TcpServer):
        if tls is not None:
            return HTTPSConnection(place.host, place.port, timeout=ANSWER_SECONDS, context=tls)
        return HTTPConnection(place.host, place.port, timeout=ANSWER_SECONDS)
    path = str(place.path)

    class UnixConnection(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(ANSWER_SECONDS)
            self.sock.connect(path)

    return UnixConnection("localhost")


def unanswered(place: Place, error: Exception) -> Fault:
    why: Any = getattr(error, "strerror", None) or str(error) or type(error).__name__
    remedy = "check the process and its option --admin; on another machine it is loopback by default"
    return Fault("UMB212", f"no status from {shown(place)}", why, remedy)


def _refused(place: Place, code: int, body: str) -> Fault:
    """The process explains a refusal in three lines of its own."""
    lines = body.splitlines()
    if len(lines) == 3 and lines[0].startswith("UMB211 "):
        why, remedy = (line.partition(": ")[2] for line in lines[1:])
        return Fault("UMB211", f"{shown(place)} refused: {lines[0][7:]}", why, remedy)
    why = f"HTTP {code}: {' '.join(lines)[:200]}"
    return Fault(
        "UMB212", f"no status from {shown(place)}", why, "give the admin address of a server or an agent of Umbilical"
    )
