"""PEM in and out: a certificate with its key, and bundles of certificates. Bytes only; files are `host`'s business."""

from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from umbilical.pki.pem import BundleError, KeyPair, join_bundle

__all__ = [
    "BundleError",
    "KeyPair",
    "PrivateKey",
    "decode_certificates",
    "decode_key",
    "decode_own_key",
    "encode_certificates",
    "encode_key",
    "encode_pair",
    "join_bundle",
    "public_half",
]

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def encode_pair(certificate: x509.Certificate, key: PrivateKey) -> KeyPair:
    return KeyPair(encode_certificates([certificate]), encode_key(key))


def encode_certificates(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def decode_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read every certificate of a bundle, at least one."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BundleError(f"no readable certificate: {error}") from error


def encode_key(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def decode_key(pem: bytes) -> PrivateKey:
    return _decode_key(pem, is_trusted=False)


def decode_own_key(pem: bytes) -> PrivateKey:
    """Read a key that we made. Its primes are believed: proving an RSA key takes 37 ms, and a set has forty."""
    return _decode_key(pem, is_trusted=True)


def public_half(key: PrivateKey) -> bytes:
    """Return the DER of the public key, as it stands in a certificate (SubjectPublicKeyInfo)."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _decode_key(pem: bytes, *, is_trusted: bool) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=is_trusted)
    except (ValueError, TypeError) as error:
        raise BundleError(f"no readable private key: {error}") from error
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise BundleError(f"neither an RSA nor an ECDSA key: {type(key).__name__}")
    return key
