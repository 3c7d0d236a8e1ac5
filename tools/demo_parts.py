"""The two ends of the demo's tunnel: a webhook that judges pods, and a client that calls it as kube-apiserver does."""

import hashlib
import http.client
import itertools
import json
import socket
import ssl
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

WEBHOOK_NAME: Final = "webhook.demo.svc"
TIMEOUT_SECONDS: Final = 10.0
RECEIVE_BYTES: Final = 256 * 1024
# Below Linux' ephemeral range, so that no outgoing connection takes a port between our look and its use.
_candidates: Final = itertools.count(21000)


def free_port() -> int:
    """Return a port on loopback that nothing listens on now."""
    for port in _candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("unreachable: the count has no end")


def http_status(port: int, path: str) -> int | None:
    """Ask a health port; None where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (ConnectionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class _Judge(BaseHTTPRequestHandler):
    """Answers AdmissionReviews by one rule, and serves bytes for the bulk transfer."""

    server: "Webhook"
    protocol_version = "HTTP/1.1"
    # Head and body in one write: two small ones wait 40 ms for each other's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        containers = request["object"]["spec"]["containers"]
        privileged = any(container["securityContext"]["privileged"] for container in containers)
        response: dict[str, object] = {"uid": request["uid"], "allowed": not privileged}
        if privileged:
            response["status"] = {"message": "privileged containers are not for this cluster", "code": 403}
        self._answer(json.dumps({**_KIND, "response": response}).encode(), "application/json")

    def do_GET(self) -> None:
        self._answer(self.server.bulk, "application/octet-stream")

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: the story is told elsewhere."""

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_KIND: Final = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


class Webhook(ThreadingHTTPServer):
    """A TLS server on a free loopback port."""

    daemon_threads = True

    def __init__(self, certificate: Path, key: Path, bulk_bytes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Judge)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # The handshake belongs to the connection's own thread: a client that stalls must not stop the accepting one.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.bulk = bytes(range(256)) * (bulk_bytes // 256)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves early is part of the story (the agent is cut off), not an error."""


class TunnelRefused(Exception):
    """The server answered the CONNECT with something other than 200; the text is its status and reason."""


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    message: str


class Caller:
    """Calls the webhook through the server's socket: one new tunnel per call, as kube-apiserver does."""

    def __init__(self, frontend: Path, address: str, context: ssl.SSLContext) -> None:
        self.address = address
        self.call_milliseconds: list[float] = []
        self.bytes_carried = 0
        self._frontend = frontend
        self._context = context

    def open_tunnel(self, address: str) -> socket.socket:
        """Ask for a tunnel and return its end of it.

        Raises:
            TunnelRefused: the server said no.
        """
        tunnel = socket.socket(socket.AF_UNIX)
        try:
            tunnel.settimeout(TIMEOUT_SECONDS)
            tunnel.connect(str(self._frontend))
            tunnel.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            self._expect_200(tunnel)
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    def review(self, pod: str, *, privileged: bool) -> Verdict:
        """Ask the webhook about a pod."""
        start = time.monotonic()
        body = json.dumps({**_KIND, "request": _request(pod, privileged)})
        answer = json.loads(self._exchange("POST", "/validate", body.encode()))["response"]
        self.call_milliseconds.append((time.monotonic() - start) * 1000)
        return Verdict(answer["allowed"], answer.get("status", {}).get("message", ""))

    def download(self, expected_bytes: int) -> float:
        """Fetch the bulk, compare its checksum, and return the milliseconds."""
        start = time.monotonic()
        body = self._exchange("GET", "/bulk", b"")
        milliseconds = (time.monotonic() - start) * 1000
        expected = hashlib.sha256(bytes(range(256)) * (expected_bytes // 256)).digest()
        if hashlib.sha256(body).digest() != expected:
            raise TunnelRefused(f"{len(body)} bytes came, and they are not the {expected_bytes} that were sent")
        return milliseconds

    def _exchange(self, method: str, path: str, body: bytes) -> bytes:
        with self._context.wrap_socket(self.open_tunnel(self.address), server_hostname=WEBHOOK_NAME) as secured:
            head = f"{method} {path} HTTP/1.1\r\nHost: {WEBHOOK_NAME}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            secured.sendall(head + body)
            response = http.client.HTTPResponse(secured, method=method)
            response.begin()
            answer = response.read()
        self.bytes_carried += len(head) + len(body) + len(answer)
        return answer

    def _expect_200(self, tunnel: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            received = tunnel.recv(RECEIVE_BYTES)
            if not received:
                break
            head += received
        status, _, rest = head.decode(errors="replace").partition("\r\n")
        if not status.startswith("HTTP/1.1 200 "):
            raise TunnelRefused(f'{status.removeprefix("HTTP/1.1 ")}: "{_body(rest, tunnel)}"')


def _body(rest: str, tunnel: socket.socket) -> str:
    """Return what follows the head; the server closes after a refusal."""
    while received := tunnel.recv(RECEIVE_BYTES):
        rest += received.decode(errors="replace")
    return rest.partition("\r\n\r\n")[2].strip()


def _request(pod: str, privileged: bool) -> dict[str, object]:
    container = {"name": "main", "image": "demo", "securityContext": {"privileged": privileged}}
    return {
        "uid": f"demo-{pod}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "object": {"metadata": {"name": pod}, "spec": {"containers": [container]}},
    }
