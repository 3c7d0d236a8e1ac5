"""A test webhook: a pod that allows and denies labelled ConfigMaps of its own namespace, to see that the bootstrap
kube-apiserver reaches webhooks in pods. It needs an image with python3 and nothing else."""

import base64
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.manifests.objects import IMAGE, Object, config_map, manifest, secret
from umbilical.manifests.static_pod import UNPRIVILEGED
from umbilical.manifests.tree import AssetTree
from umbilical.pki.pem import KeyPair

NAME: Final = "umbilical-test-webhook"
"""Of the namespace and of every object in it."""
CONFIGURATION: Final = "test.webhook.umbilical.dev"
LABEL: Final = ("umbilical.dev/test-webhook", "true")
"""On every object."""
VERDICT: Final = "umbilical.dev/verdict"
"""Label of the ConfigMaps that the webhook judges: `allow` or `deny`."""
SERVER_NAMES: Final = (f"{NAME}.{NAME}.svc", f"{NAME}.{NAME}.svc.cluster.local")
REMOVAL: Final = f"kubectl delete validatingwebhookconfigurations,namespaces -l {'='.join(LABEL)}"
PORT: Final = 8443
_USER: Final = 65532
_PKI: Final = "/etc/webhook/pki"
_CODE: Final = "/etc/webhook/code"
_FILE: Final = "webhook.py"
# For any python3 from 3.8 on, without packages.
PROGRAM: Final = f'''\
import http.server
import json
import socket
import ssl
import sys


class Webhook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        self.answer(b"ok")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        verdict = (request["object"]["metadata"].get("labels") or {{}}).get("{VERDICT}")
        response = {{"uid": request["uid"], "allowed": verdict != "deny"}}
        if verdict == "deny":
            response["status"] = {{"message": "denied by the test webhook"}}
        review = {{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}}
        self.answer(json.dumps(review).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + "/tls.crt", sys.argv[1] + "/tls.key")
both = socket.has_dualstack_ipv6()
family = socket.AF_INET6 if both else socket.AF_INET
server = http.server.ThreadingHTTPServer(("", {PORT}), Webhook, bind_and_activate=False)
listener = socket.create_server(("", {PORT}), family=family, dualstack_ipv6=both)
server.socket = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
'''


def trial_webhook(image: str, authority: bytes, pair: KeyPair) -> AssetTree:
    """Return the objects, one file each, in the order to apply them. Raises RenderError: the image is not valid."""
    if not IMAGE.fullmatch(image):
        why = "an image reference contains only letters, digits and . _ : / @ -"
        raise RenderError("UMB110", f"image {image} is not valid", why, "umbilical bootstrap render --help")
    keys = {"tls.crt": pair.certificate, "tls.key": pair.key}
    tree = AssetTree()
    for number, value in enumerate(
        (
            manifest("v1", "Namespace", {"name": NAME, "labels": dict([LABEL])}),
            manifest("v1", "ServiceAccount", _head(), automountServiceAccountToken=False),
            secret(_head(), keys),
            config_map(_head(), {_FILE: PROGRAM}),
            manifest("v1", "Pod", _head(), spec=_pod(image)),
            manifest("v1", "Service", _head(), spec=_service()),
            _configuration(authority),
        )
    ):
        tree.add_yaml(f"/{number}-{value['kind'].lower()}.yaml", value)
    return tree


def judged(verdict: str) -> Object:
    """Return a ConfigMap that the webhook judges; it is only ever sent as a dry run."""
    return config_map({"name": f"judged-{verdict}", "namespace": NAME, "labels": {VERDICT: verdict}}, {})


def _head() -> dict[str, Any]:
    return {"name": NAME, "namespace": NAME, "labels": dict([LABEL])}


def _pod(image: str) -> dict[str, Any]:
    container = {
        "name": "webhook",
        "image": image,
        "command": ["python3", f"{_CODE}/{_FILE}", _PKI],
        "readinessProbe": {"httpGet": {"scheme": "HTTPS", "port": PORT, "path": "/"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [
            {"name": "pki", "mountPath": _PKI, "readOnly": True},
            {"name": "code", "mountPath": _CODE, "readOnly": True},
        ],
    }
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        # At this time there may be only control-plane nodes, and none of them ready.
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "pki", "secret": {"secretName": NAME, "defaultMode": 0o440}},
            {"name": "code", "configMap": {"name": NAME}},
        ],
    }


def _service() -> dict[str, Any]:
    return {"selector": dict([LABEL]), "ports": [{"port": 443, "targetPort": PORT, "protocol": "TCP"}]}


def _configuration(authority: bytes) -> Object:
    webhook = {
        "name": CONFIGURATION,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        # The point of the test; no other object in the cluster is judged.
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "clientConfig": {
            "service": {"namespace": NAME, "name": NAME, "port": 443, "path": "/validate"},
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": dict([LABEL])},
        "objectSelector": {"matchExpressions": [{"key": VERDICT, "operator": "Exists"}]},
    }
    head = {"name": CONFIGURATION, "labels": dict([LABEL])}
    return manifest("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", head, webhooks=[webhook])
