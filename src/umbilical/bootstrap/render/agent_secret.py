"""The one certificate that all agents share, with the authority by which they know the server."""

import base64
from typing import Any

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, BOOTSTRAP_ONLY
from umbilical.bootstrap.render import placeholders
from umbilical.bootstrap.spec import TunnelSpec


def agent_secret(spec: TunnelSpec, certificates: Certificates | None = None) -> dict[str, Any]:
    key, value = BOOTSTRAP_ONLY
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": AGENT_SECRET,
            "namespace": spec.namespace,
            "labels": {"app": AGENT_NAME, key: value},
        },
        # Not kubernetes.io/tls: what the installer landed is Opaque, and `ca.crt` belongs to it.
        "type": "Opaque",
        "data": _data(certificates),
    }


def _data(certificates: Certificates | None) -> dict[str, str]:
    if certificates is None:
        return {
            "tls.crt": placeholders.AGENT_CERTIFICATE,
            "tls.key": placeholders.AGENT_KEY,
            "ca.crt": placeholders.AUTHORITY,
        }
    files = {
        "tls.crt": certificates.agent.certificate,
        "tls.key": certificates.agent.key,
        "ca.crt": certificates.authority,
    }
    return {name: base64.b64encode(content).decode() for name, content in files.items()}
