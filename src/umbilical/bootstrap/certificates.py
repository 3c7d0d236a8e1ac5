"""The certificates of one tunnel, as far as they are made before the node exists."""

import hashlib
from dataclasses import dataclass

from umbilical.pki.pem import KeyPair


@dataclass(frozen=True)
class Certificates:
    """What both ends need; the authority's key is not among it, since nothing is signed later."""

    authority: bytes
    """PEM."""
    server: KeyPair
    agent: KeyPair

    @property
    def server_fingerprint(self) -> str:
        return fingerprint(self.server.certificate)


def fingerprint(certificate: bytes) -> str:
    """Name a PEM file as `sha256sum` on the node does. The prefix keeps YAML from reading digits as a number."""
    return f"sha256-{hashlib.sha256(certificate).hexdigest()}"
