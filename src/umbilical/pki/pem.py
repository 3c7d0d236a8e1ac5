"""PEM text as such: a certificate with its key, and bundles. Needs no library: `authority` makes its objects of it."""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----", re.ASCII)
_PUBLIC_KEY: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]*)-----END PUBLIC KEY-----", re.ASCII)
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
# PKCS#8 says it in its first line, the older forms in a header below it.
_ENCRYPTED: Final = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: *4,ENCRYPTED", re.MULTILINE)
_LINE_LENGTH: Final = 64


class BundleError(Exception):
    """The PEM text is not what it was given as."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM. The key stays out of `repr`, so it cannot slip into a log."""

    certificate: bytes
    key: bytes = field(repr=False)


def certificate_blocks(pem: bytes) -> list[bytes]:
    """Return the DER of every certificate of a bundle, at least one."""
    blocks = [_decode(body, "certificate") for body in _CERTIFICATE.findall(pem)]
    if not blocks:
        raise BundleError("no readable certificate: there is no BEGIN CERTIFICATE with its END")
    return blocks


def public_key_block(pem: bytes) -> bytes:
    """Return the DER of a public key."""
    found = _PUBLIC_KEY.search(pem)
    if found is None:
        raise BundleError("no readable public key: there is no BEGIN PUBLIC KEY with its END")
    return _decode(found.group(1), "public key")


def encode_blocks(blocks: Iterable[bytes]) -> bytes:
    return b"".join(_encode(block, b"CERTIFICATE") for block in blocks)


def encode_public_key(block: bytes) -> bytes:
    """Write a SubjectPublicKeyInfo as whoever checks signatures without a certificate reads it."""
    return _encode(block, b"PUBLIC KEY")


def join_bundle(*bundles: bytes) -> bytes:
    """Join PEM bundles, each certificate once: what a CA rotation needs for its overlap."""
    return encode_blocks(dict.fromkeys(block for bundle in bundles for block in certificate_blocks(bundle)))


def holds_key(pem: bytes) -> bool:
    return _PRIVATE_KEY.search(pem) is not None


def is_encrypted(pem: bytes) -> bool:
    """Tell whether a passphrase would be asked for: nobody is there to type it when a server starts."""
    return _ENCRYPTED.search(pem) is not None


def _decode(body: bytes, what: str) -> bytes:
    try:
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error as error:
        raise BundleError(f"no readable {what}: {error}") from error


def _encode(block: bytes, label: bytes) -> bytes:
    text = base64.b64encode(block)
    lines = [text[start : start + _LINE_LENGTH] for start in range(0, len(text), _LINE_LENGTH)]
    return b"\n".join([b"-----BEGIN %b-----" % label, *lines, b"-----END %b-----" % label, b""])
