"""An admission webhook in a thread: denies what is labelled `verdict: deny`, or answers whatever a test says."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.support.joined_server import HttpServer
from tests.support.tunnel_pki import FolderAuthority, Pair

DENIAL: Final = "not on my watch"
Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


def honest_answer(review: dict[str, Any]) -> tuple[int, bytes]:
    request = review["request"]
    labels = (request["object"].get("metadata") or {}).get("labels") or {}
    response: dict[str, Any] = {"uid": request["uid"], "allowed": labels.get("verdict") != "deny"}
    if not response["allowed"]:
        response["status"] = {"message": DENIAL}
    return 200, json.dumps({**review, "request": None, "response": response}).encode()


@contextmanager
def webhook_listener(
    authority: FolderAuthority, pair: Pair, answer: Answer = honest_answer, seen: list[dict[str, Any]] | None = None
) -> Iterator[int]:
    """Yield the port on 127.0.0.1; requests are appended to `seen`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 20

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if seen is not None:
                seen.append({"path": self.path, "host": self.headers["Host"], "review": review})
            status, body = answer(review)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = HttpServer(("127.0.0.1", 0), Handler)
    context = authority.server_context(pair)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="webhook")
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


def client_context(authority: FolderAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate_file))
