"""PEM text, without a library: `cryptography` says what is right."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from umbilical.pki.authority import Authority
from umbilical.pki.bundle import decode_certificates, decode_key
from umbilical.pki.pem import (
    BundleError,
    certificate_blocks,
    encode_blocks,
    encode_public_key,
    holds_key,
    is_encrypted,
    join_bundle,
    public_key_block,
)
from umbilical.pki.profiles import KeyType

AUTHORITY = Authority.create("a", datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1), KeyType.ECDSA_P256)
CERTIFICATE = AUTHORITY.certificate_pem


def test_blocks_are_what_the_library_reads_and_writes() -> None:
    expected = [one.public_bytes(serialization.Encoding.DER) for one in decode_certificates(CERTIFICATE)]
    assert certificate_blocks(CERTIFICATE) == expected
    assert encode_blocks(expected) == CERTIFICATE


def test_a_public_key_is_written_as_the_library_writes_it() -> None:
    public = decode_key(AUTHORITY.pair.key).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    block = public.public_bytes(serialization.Encoding.DER, form)
    assert encode_public_key(block) == public.public_bytes(serialization.Encoding.PEM, form)
    assert public_key_block(encode_public_key(block)) == block


def test_text_around_a_certificate_and_windows_line_ends_do_not_matter() -> None:
    wrapped = b"subject=CN = a\r\n" + CERTIFICATE.replace(b"\n", b"\r\n") + b"trailing words\r\n"
    assert certificate_blocks(wrapped) == certificate_blocks(CERTIFICATE)


@pytest.mark.parametrize(
    "pem",
    [b"", b"nonsense", CERTIFICATE[:-10], b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n"],
    ids=["empty", "nonsense", "cut", "bad base64"],
)
def test_what_holds_no_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(BundleError, match="no readable certificate"):
        certificate_blocks(pem)


def test_joining_keeps_the_order_and_drops_doubles() -> None:
    other = Authority.create("b", datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1), KeyType.ECDSA_P256)
    assert join_bundle(CERTIFICATE, other.certificate_pem + CERTIFICATE) == CERTIFICATE + other.certificate_pem


def test_a_public_key_is_found() -> None:
    public = decode_key(AUTHORITY.pair.key).public_key()
    pem, expected = (
        public.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
    )
    assert public_key_block(pem) == expected
    with pytest.raises(BundleError, match="no readable public key"):
        public_key_block(CERTIFICATE)


def test_keys_and_encrypted_keys_are_told_apart() -> None:
    key = decode_key(AUTHORITY.pair.key)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    traditional = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    )
    assert [holds_key(pem) for pem in (AUTHORITY.pair.key, locked, traditional, CERTIFICATE)] == [True] * 3 + [False]
    assert [is_encrypted(pem) for pem in (AUTHORITY.pair.key, locked, traditional)] == [False, True, True]


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4))
def test_blocks_survive_the_way_out_and_in(blocks: list[bytes]) -> None:
    assert certificate_blocks(encode_blocks(blocks)) == blocks


@given(st.binary(max_size=200))
def test_nothing_but_a_bundle_error_comes_of_any_text(content: bytes) -> None:
    for pem in (content, b"-----BEGIN CERTIFICATE-----" + content + b"-----END CERTIFICATE-----"):
        try:
            assert certificate_blocks(pem)
        except BundleError:
            continue
