"""The certificates of one tunnel, if they are created before the node exists."""

import hashlib
from dataclasses import dataclass

from umbilical.pki.pem import KeyPair


@dataclass(frozen=True)
class Certificates:
    """Files of both ends, without the CA's key: nothing is signed later."""

    authority: bytes
    """PEM."""
    server: KeyPair
    agent: KeyPair

    @property
    def server_fingerprint(self) -> str:
        return fingerprint(self.server.certificate)


def fingerprint(certificate: bytes) -> str:
    """Return the hash that `sha256sum` gives on the node. The prefix keeps YAML from parsing digits as a number."""
    return f"sha256-{hashlib.sha256(certificate).hexdigest()}"
