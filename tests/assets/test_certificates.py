"""Certificates that come with the assets."""

import hashlib

from umbilical.assets.certificates import Certificates, fingerprint
from umbilical.pki.bundle import KeyPair


def test_the_fingerprint_is_that_of_the_file() -> None:
    assert fingerprint(b"pem") == "sha256-" + hashlib.sha256(b"pem").hexdigest()


def test_keys_stay_out_of_what_is_printed() -> None:
    given = Certificates(b"ca", KeyPair(b"server", b"server-key"), KeyPair(b"agent", b"agent-key"))
    assert "key" not in repr(given).replace("key=", "")
    assert given.server_fingerprint == fingerprint(b"server")
