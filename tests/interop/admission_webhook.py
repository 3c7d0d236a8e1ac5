"""A validating webhook for a test: denies what carries the label `verdict: deny`, allows everything else.

Run as `python -m tests.interop.admission_webhook ADDRESS PORT CERTIFICATE KEY`; kube-apiserver is its client.
"""

import http.server
import json
import ssl
import sys
from typing import Any

DENIAL = "the webhook in the cluster says no"


class _Reviewer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        body = json.dumps(review(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def review(request: dict[str, Any]) -> dict[str, Any]:
    """Return the AdmissionReview that answers a request."""
    labels = request["object"]["metadata"].get("labels", {})
    allowed = labels.get("verdict") != "deny"
    response: dict[str, Any] = {"uid": request["uid"], "allowed": allowed}
    if not allowed:
        response["status"] = {"code": 403, "message": DENIAL}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def serve(address: str, port: int, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer((address, port), _Reviewer) as server:
        # The handshake belongs to the connection's own thread: a client that never finishes one stops nobody.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
