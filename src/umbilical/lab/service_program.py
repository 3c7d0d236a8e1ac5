"""`lab-service`: the HTTPS server that the lab runs in a pod, for kube-apiserver.

Paths: /validate (validating webhook), /convert (conversion webhook), /apis/... (aggregated API), /healthz, /calls
(number of calls by path), /ticks (sends lines without end) and /never (does not answer). It trusts X-Remote-User
without a check, since it protects nothing. It imports only the standard library, to start fast.
"""

import argparse
import http.server
import json
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from umbilical.fault import LabError
from umbilical.lab import service_answers
from umbilical.lab.service_answers import BadQuestion

# kube-apiserver's own limit is MaxRequestBodyBytes, and a review has two objects at most.
MAX_BODY_BYTES: Final = 8 << 20
IDLE_SECONDS: Final = 90.0
"""As long as Go's clients keep an idle connection, so that the client closes it."""
TICK_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 600.0
"""Limit for /ticks and /never, so that a forgotten client does not keep its thread."""
_ANSWERS: Final = {"/validate": service_answers.review, "/convert": service_answers.convert}


class LabService(http.server.ThreadingHTTPServer):
    """HTTPS server; each connection does its TLS handshake in its own thread."""

    daemon_threads = True

    def __init__(
        self, listen: tuple[str, int], context: ssl.SSLContext | None, node: str, *, closes_connections: bool = False
    ) -> None:
        self.node = node
        self.closes_connections = closes_connections
        self.calls: Counter[str] = Counter()
        self.calls_lock = threading.Lock()
        super().__init__(listen, Answerer, bind_and_activate=False)
        self.socket.close()
        listener = _listener(listen)
        self.server_address = listener.getsockname()
        # A client that does not finish its handshake must not block others.
        self.socket = listener
        if context is not None:
            self.socket = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def count(self, path: str) -> None:
        with self.calls_lock:
            self.calls[path] += 1

    def handle_error(self, request: object, client_address: object) -> None:
        """Print one line instead of a traceback: probes often end within the handshake."""
        say(f"{client_address}: {sys.exc_info()[1]!r}")


class Answerer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    # Without this, the second write would wait for the peer's delayed acknowledgement (40 ms).
    disable_nagle_algorithm = True
    server: LabService

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok", "text/plain")
            return
        if path == "/calls":
            self._answer_json(dict(self.server.calls))
            return
        if path in {"/ticks", "/never"}:
            self._last(path)
            return
        user, accept = self.headers.get("X-Remote-User", "nobody"), self.headers.get("Accept", "")
        found = service_answers.api_resource(path, self.server.node, user, accept)
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
            return
        self._called(path, f"called by {user}")
        self._answer_json(found)

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        answer = _ANSWERS.get(path)
        try:
            body = self._body()
            if answer is None:
                self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
                return
            result = answer(json.loads(body), self.server.node)
        except (BadQuestion, ValueError, RecursionError) as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), "text/plain")
            return
        self._called(path, _words(result["response"]))
        self._answer_json(result)

    def log_message(self, format: str, *args: object) -> None:
        """No access log: each call prints one line of its own."""

    def _last(self, path: str) -> None:
        """Send until the client disconnects; then close the connection."""
        self.close_connection = True
        self._called(path, "until the client disconnects")
        end = time.monotonic() + LONGEST_SECONDS
        if path == "/never":
            # A waiting client sends nothing, so a readable socket means that it closed.
            self.connection.settimeout(LONGEST_SECONDS)
            self.rfile.read(1)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Connection", "close")
        self.end_headers()
        while time.monotonic() < end:
            self.wfile.write(b"tick\n")
            time.sleep(TICK_SECONDS)

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length", "-1"))
        if not 0 <= length <= MAX_BODY_BYTES:
            # Unread bytes would be parsed as the next request.
            self.close_connection = True
            raise BadQuestion(f"the request needs a Content-Length of 0 to {MAX_BODY_BYTES}")
        return self.rfile.read(length)

    def _called(self, path: str, words: str) -> None:
        self.server.count(path)
        say(f"{path} from {self.client_address[0]}: {words}")

    def _answer_json(self, value: dict[str, Any]) -> None:
        self._answer(HTTPStatus.OK, json.dumps(value).encode(), "application/json")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.server.closes_connections:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def say(text: str) -> None:
    print(text, flush=True)


def _words(response: dict[str, Any]) -> str:
    if "allowed" in response:
        return "allowed" if response["allowed"] else "denied"
    return str(response["result"]["status"])


def _listener(listen: tuple[str, int]) -> socket.socket:
    host, port = listen
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def parse_listen(text: str) -> tuple[str, int]:
    """Read ADDRESS:PORT; `:8443` means all addresses, IPv6 is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "lab-service", description="Serve the lab's webhooks and aggregated API over TLS.", allow_abbrev=False
    )
    parser.add_argument("--listen", type=parse_listen, default=("", 8443), metavar="ADDRESS:PORT")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--certificate", metavar="FILE")
    parser.add_argument("--key", metavar="FILE")
    parser.add_argument("--node-name", required=True, help="node name that every answer contains")
    parser.add_argument("--close-connections", action="store_true", help="close each connection after its first answer")
    options = parser.parse_args(arguments)
    if not options.plain and not (options.certificate and options.key):
        parser.error("give --certificate and --key, or --plain")
    return options


def make_service(options: argparse.Namespace) -> LabService:
    """Load the certificate and bind the port. Raises LabError: one of them failed (UMB880)."""
    context = None if options.plain else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if context is not None:
            context.load_cert_chain(options.certificate, options.key)
        return LabService(options.listen, context, options.node_name, closes_connections=options.close_connections)
    except OSError as error:
        why = f"{error.filename or ''} {error.strerror or error}".strip()
        remedy = f"ls -l {options.certificate} {options.key}; ss -ltn"
        raise LabError("UMB880", "the lab's service did not start", why, remedy) from None


def main(arguments: Sequence[str] | None = None) -> int:
    # PID 1 of a container has no default action for this signal.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    try:
        service = make_service(parse_arguments(arguments))
    except LabError as error:
        print(error, file=sys.stderr)
        return 4
    with service:
        say(f"ready on port {service.port} as {service.node}")
        service.serve_forever()
    return 0


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
