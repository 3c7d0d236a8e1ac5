"""PEM in and out, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from umbilical.pki.authority import Authority, decode_certificates, decode_key, decode_own_key, encode_key, public_half
from umbilical.pki.certificate import read_certificates
from umbilical.pki.pem import BundleError
from umbilical.pki.profiles import KeyType

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _authority(name: str) -> Authority:
    return Authority.create(name, NOW, timedelta(days=1), KeyType.ECDSA_P256)


def test_a_key_survives_the_way_out_and_in_and_shows_in_no_repr() -> None:
    pem = _authority("a").pair.key
    assert encode_key(decode_key(pem)) == pem
    pair = _authority("a").pair
    assert "PRIVATE KEY" in pair.key.decode()
    assert "PRIVATE KEY" not in repr(pair)
    assert "CERTIFICATE" in repr(pair)


def test_our_own_key_is_read_without_a_proof_and_has_its_certificates_public_half() -> None:
    for key_type in KeyType:
        pair = Authority.create("a", NOW, timedelta(days=1), key_type).pair
        key = decode_own_key(pair.key)
        assert encode_key(key) == pair.key
        assert public_half(key) == read_certificates(pair.certificate)[0].key.encoded
        with pytest.raises(BundleError, match="no readable private key"):
            decode_own_key(pair.certificate)


def test_what_cannot_be_read_or_is_of_another_kind_is_refused() -> None:
    for pem in (b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"):
        with pytest.raises(BundleError, match="no readable certificate"):
            decode_certificates(pem)
    with pytest.raises(BundleError, match="no readable private key"):
        decode_key(b"nonsense")
    foreign = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(BundleError, match="neither RSA nor ECDSA"):
        decode_key(foreign)
