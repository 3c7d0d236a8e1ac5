"""PEM text: a certificate with its key, and bundles. Needs no library; `authority` parses the content."""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----", re.ASCII)
_PUBLIC_KEY: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]*)-----END PUBLIC KEY-----", re.ASCII)
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
# PKCS#8 marks encryption in the first line, older formats in a header.
_ENCRYPTED: Final = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: *4,ENCRYPTED", re.MULTILINE)
_LINE_LENGTH: Final = 64


class BundleError(Exception):
    """The PEM text does not hold what the caller expects."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM. `repr` omits the key, so that no log shows it."""

    certificate: bytes
    key: bytes = field(repr=False)


def certificate_blocks(pem: bytes) -> list[bytes]:
    """Return the DER of every certificate of a bundle; it must have at least one."""
    blocks = [_decode(body, "certificate") for body in _CERTIFICATE.findall(pem)]
    if not blocks:
        raise BundleError("no readable certificate: there is no BEGIN CERTIFICATE block")
    return blocks


def public_key_block(pem: bytes) -> bytes:
    found = _PUBLIC_KEY.search(pem)
    if found is None:
        raise BundleError("no readable public key: there is no BEGIN PUBLIC KEY block")
    return _decode(found.group(1), "public key")


def encode_blocks(blocks: Iterable[bytes]) -> bytes:
    return b"".join(_encode(block, b"CERTIFICATE") for block in blocks)


def encode_public_key(block: bytes) -> bytes:
    """Encode a SubjectPublicKeyInfo as PEM."""
    return _encode(block, b"PUBLIC KEY")


def join_bundle(*bundles: bytes) -> bytes:
    """Join PEM bundles without duplicates: a CA rotation trusts old and new CA for a while."""
    return encode_blocks(dict.fromkeys(block for bundle in bundles for block in certificate_blocks(bundle)))


def holds_key(pem: bytes) -> bool:
    return _PRIVATE_KEY.search(pem) is not None


def is_encrypted(pem: bytes) -> bool:
    """Return whether the key needs a passphrase, which no one can enter when a server starts."""
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
