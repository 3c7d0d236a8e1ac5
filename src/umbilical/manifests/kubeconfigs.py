"""Kubeconfigs with everything in them: who is asked, by whom it is known, and as whom one asks."""

import base64
from typing import Any, Final

from umbilical.pki.pem import KeyPair

CLUSTER: Final = "kubernetes"


def kubeconfig(
    user: str, server_url: str, authority_pem: bytes, pair: KeyPair, cluster_name: str = CLUSTER
) -> dict[str, Any]:
    """Nothing in it names a file, so it can be moved; it holds a key, so it is as secret as one."""
    cluster = {"server": server_url, "certificate-authority-data": _base64(authority_pem)}
    credentials = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster_name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": user, "context": {"cluster": cluster_name, "user": user}}],
        "current-context": user,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
