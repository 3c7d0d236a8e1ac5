"""PEM in and out, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from umbilical.pki.authority import Authority
from umbilical.pki.bundle import (
    BundleError,
    KeyPair,
    decode_certificates,
    decode_key,
    decode_own_key,
    encode_key,
    join_bundle,
    public_half,
)
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _authority(name: str) -> Authority:
    return Authority.create(name, NOW, timedelta(days=1), KeyType.ECDSA_P256)


def test_a_key_survives_the_way_out_and_in() -> None:
    pem = _authority("a").pair.key
    assert encode_key(decode_key(pem)) == pem


@pytest.mark.parametrize("key_type", KeyType)
def test_our_own_key_is_read_without_a_proof_and_has_its_certificates_public_half(key_type: KeyType) -> None:
    pair = Authority.create("a", NOW, timedelta(days=1), key_type).pair
    key = decode_own_key(pair.key)
    assert encode_key(key) == pair.key
    assert public_half(key) == read_certificates(pair.certificate)[0].key.encoded
    with pytest.raises(BundleError, match="no readable private key"):
        decode_own_key(pair.certificate)


def test_the_key_never_shows_in_a_repr() -> None:
    pair = _authority("a").pair
    assert "PRIVATE KEY" in pair.key.decode()
    assert "PRIVATE KEY" not in repr(pair)
    assert "CERTIFICATE" in repr(pair)


def test_bundles_are_joined_without_doubles() -> None:
    old, new = _authority("old").certificate_pem, _authority("new").certificate_pem
    joined = join_bundle(old, new + old)
    assert [found.subject.rfc4514_string() for found in decode_certificates(joined)] == ["CN=old", "CN=new"]


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"])
def test_a_bundle_without_a_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(BundleError, match="no readable certificate"):
        decode_certificates(pem)


def test_something_that_is_no_key_is_refused() -> None:
    with pytest.raises(BundleError, match="no readable private key"):
        decode_key(b"nonsense")


def test_a_key_of_an_unsupported_kind_is_refused() -> None:
    pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(BundleError, match="neither an RSA nor an ECDSA key"):
        decode_key(pem)


def test_a_pair_is_equal_to_its_own_copy() -> None:
    pair = _authority("a").pair
    assert pair == KeyPair(pair.certificate, pair.key)
