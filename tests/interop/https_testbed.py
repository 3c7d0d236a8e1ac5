"""A tunnel with HTTP proxies, and their endpoints: pages, tinyproxy, WebSockets."""

import http.server
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.interop.fleet import UMBILICAL
from tests.support.joined_server import HttpServer
from tests.support.tunnel_pair import Daemon, TunnelPair, free_port, http_get, wait_until

BODY: Final = b"answer " * 50_000
ELSEWHERE: Final = "192.0.2.80"
"""An address that is not loopback: a user's proxy is never used for loopback."""


class Pages(http.server.BaseHTTPRequestHandler):
    """Answers in HTTP/1.1, with a length or in chunks; reports how a body was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/chunked":
            self._answer_in_chunks(BODY)
        else:
            self._answer(BODY)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self._body()
        self._answer(body.upper())

    do_PUT = do_POST

    def _body(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        for name in ("Expect", "Transfer-Encoding", "Via", "Proxy-Authorization", "Accept-Encoding"):
            if name in self.headers:
                self.send_header(f"X-Got-{name}", self.headers[name])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer_in_chunks(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Length")
        self.end_headers()
        for at in range(0, len(body), 10_000):
            piece = body[at : at + 10_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\nX-Length: %d\r\n\r\n" % len(body))

    def log_message(self, format: str, *args: Any) -> None:
        """The client's side is what the tests read."""


def files_of(folder: Path) -> type[http.server.BaseHTTPRequestHandler]:
    """A server for the plain files of a folder."""

    class Files(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, format: str, *args: Any) -> None:
            """The client's side is what the tests read."""

    return Files


class _Server6(HttpServer):
    address_family = socket.AF_INET6


@contextmanager
def pages_at(
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    handler: type[http.server.BaseHTTPRequestHandler] = Pages,
) -> Iterator[int]:
    kind = _Server6 if ":" in host else HttpServer
    with kind((host, free_port()), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="pages")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)


class HttpsTestbed:
    """A proxy in plain HTTP, one with TLS, and further ones as tests need."""

    def __init__(self, pair: TunnelPair, stack: ExitStack) -> None:
        self.pair: Final = pair
        self.stack: Final = stack
        self.daemons: Final[dict[str, Daemon]] = {}
        self.health = 0
        self.port, self.health = self.start("plain")
        serving = pair.pki.server
        self.tls_port, _ = self.start(
            "tls", "--listen-cert", str(serving.certificate), "--listen-key", str(serving.key)
        )
        self.url: Final = f"http://127.0.0.1:{self.port}"

    def start(self, name: str, *options: str) -> tuple[int, int]:
        """Start a proxy and wait until it is ready; its port, and its port for health."""
        port, health = free_port(), free_port()
        places = ("--listen", f"127.0.0.1:{port}", "--health", f"127.0.0.1:{health}")
        daemon = Daemon(
            [UMBILICAL, "proxy", "https", *places, *self._server(), *options], self.pair.folder / f"https-{name}.log"
        )
        self.stack.callback(lambda: print(daemon.log_tail()))
        self.stack.callback(daemon.kill)
        self.daemons[name] = daemon
        daemon.start()
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/readyz")[0] == 200, f"the proxy {name} is ready")
        return port, health

    def _server(self) -> list[str]:
        pair, client = self.pair, self.pair.pki.client
        return [
            *("--server", f"127.0.0.1:{pair.ports.frontend}", "--protocol", pair.shape.mode),
            *("--ca", str(pair.pki.authority.certificate_file)),
            *("--cert", str(client.certificate), "--key", str(client.key)),
        ]

    def metrics(self) -> str:
        return http_get(f"http://127.0.0.1:{self.health}/metrics")[1]


class Tinyproxy:
    """Debian's tinyproxy as the user's proxy, with a password."""

    USER: Final = "ann"
    PASSWORD: Final = "p.a-s_s"
    """The only special characters that its configuration accepts."""

    def __init__(self, folder: Path) -> None:
        self.port: Final = free_port()
        self._log: Final = folder / "tinyproxy.txt"
        configuration = folder / "tinyproxy.conf"
        configuration.write_text(
            f'Port {self.port}\nListen 127.0.0.1\nTimeout 60\nAllow 127.0.0.1\nLogFile "{self._log}"\nLogLevel Info\n'
            f"BasicAuth {self.USER} {self.PASSWORD}\n"
        )
        self.daemon: Final = Daemon(["tinyproxy", "-d", "-c", str(configuration)], folder / "tinyproxy.log")

    def start(self) -> None:
        self.daemon.start()
        wait_until(self._listens, "tinyproxy listens")

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def _listens(self) -> bool:
        assert self.daemon.is_running(), self.daemon.log_tail()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def curl(arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--noproxy", "", *arguments]
    return subprocess.run(command, capture_output=True, timeout=90, check=False)
