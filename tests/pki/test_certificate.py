"""Certificates as bytes: PEM, bundles, and what stands in them."""

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from umbilical.pki.authority import Authority, decode_certificates, decode_key
from umbilical.pki.certificate import (
    Certificate,
    distinguished_name,
    read_certificate,
    read_certificates,
    read_public_key,
)
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
from umbilical.pki.profiles import KeyType, client_profile, server_profile

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
    with pytest.raises(BundleError, match="no readable public key"):
        public_key_block(CERTIFICATE)


def test_text_around_a_certificate_does_not_matter_but_what_holds_none_is_refused() -> None:
    wrapped = b"subject=CN = a\r\n" + CERTIFICATE.replace(b"\n", b"\r\n") + b"trailing words\r\n"
    assert certificate_blocks(wrapped) == certificate_blocks(CERTIFICATE)
    for pem in (b"", b"nonsense", CERTIFICATE[:-10], b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(BundleError, match="no readable certificate"):
            certificate_blocks(pem)


def test_joining_keeps_the_order_and_drops_doubles() -> None:
    other = Authority.create("b", datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1), KeyType.ECDSA_P256)
    assert join_bundle(CERTIFICATE, other.certificate_pem + CERTIFICATE) == CERTIFICATE + other.certificate_pem


def test_keys_and_encrypted_keys_are_told_apart() -> None:
    key, secret = decode_key(AUTHORITY.pair.key), serialization.BestAvailableEncryption(b"secret")
    forms = (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL)
    locked = [key.private_bytes(serialization.Encoding.PEM, form, secret) for form in forms]
    assert [holds_key(pem) for pem in (AUTHORITY.pair.key, *locked, CERTIFICATE)] == [True] * 3 + [False]
    assert [is_encrypted(pem) for pem in (AUTHORITY.pair.key, *locked)] == [False, True, True]


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


THEN = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
ADDRESSES = ["api.example.com", "10.0.0.9", "2001:db8::9", "*.apps.example.com"]
KEY = ec.generate_private_key(ec.SECP256R1())
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@pytest.fixture(scope="module", params=list(KeyType), ids=lambda key_type: key_type.value)
def key_type(request: pytest.FixtureRequest) -> KeyType:
    found = request.param
    assert isinstance(found, KeyType)
    return found


def signed(key: Key, *extensions: x509.ExtensionType, days: int = 1, name: x509.Name | None = None) -> bytes:
    subject = name or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    builder = (
        x509.CertificateBuilder()
        .serial_number(7)
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .not_valid_before(THEN)
        .not_valid_after(THEN + timedelta(days=days))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA384()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.DER)


def test_facts_are_what_the_library_reads(key_type: KeyType) -> None:
    authority = Authority.create("signer", THEN, DAY, key_type, ["openshift"])
    pem = authority.issue(server_profile("konnectivity-server", ADDRESSES, key_type), THEN, DAY).certificate
    found, expected = read_certificates(pem)[0], decode_certificates(pem)[0]
    names = expected.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    own = expected.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    above = expected.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert found.serial == expected.serial_number
    assert (found.not_before, found.not_after) == (expected.not_valid_before_utc, expected.not_valid_after_utc)
    assert list(found.dns_names) == names.get_values_for_type(x509.DNSName)
    assert list(found.ip_addresses) == names.get_values_for_type(x509.IPAddress)
    assert (found.key_identifier, found.authority_identifier) == (own.digest, above.key_identifier)
    assert found.key.identifier == own.digest
    assert found.key.encoded == expected.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert found.encoded == expected.public_bytes(serialization.Encoding.DER)


def test_names_uses_and_strength_are_told_with_what_is_critical(key_type: KeyType) -> None:
    authority = Authority.create("signer", THEN, DAY, key_type, ["openshift"])
    pem = authority.issue(client_profile("agent", ["group"], key_type), THEN, DAY).certificate
    leaf, root = read_certificates(pem + authority.certificate_pem)
    assert (leaf.common_name, leaf.issuer_name, leaf.usages) == ("agent", "signer", ("clientAuth",))
    assert distinguished_name(leaf.subject) == "O=group, CN=agent"
    assert (leaf.is_authority, root.is_authority) == (False, True)
    assert (leaf.is_self_issued, root.is_self_issued) == (False, True)
    assert leaf.key.title == {KeyType.RSA_2048: "RSA 2048", KeyType.ECDSA_P256: "ECDSA P-256"}[key_type]
    assert (leaf.key.is_strong, leaf.is_strongly_signed, leaf.signature_hash) == (True, True, "SHA-256")
    assert leaf.names == ()
    assert leaf.time_left(THEN) == DAY
    assert root.key_usages == ("digitalSignature", "keyCertSign", "cRLSign")
    assert leaf.key_usages == ("digitalSignature", *(["keyEncipherment"] if key_type is KeyType.RSA_2048 else []))
    assert leaf.critical == root.critical == {"basicConstraints", "keyUsage"}
    assert root.path_length is None


@given(st.tuples(*[st.booleans()] * 9))
def test_every_usage_of_a_key_is_read(flags: tuple[bool, ...]) -> None:
    # The last two are of use with keyAgreement only, and the library refuses them without.
    flags = (*flags[:7], flags[7] and flags[4], flags[8] and flags[4])
    usage = x509.KeyUsage(*flags)
    found = read_certificate(signed(KEY, usage)).key_usages
    names = ["digitalSignature", "nonRepudiation", "keyEncipherment", "dataEncipherment", "keyAgreement"]
    names += ["keyCertSign", "cRLSign", "encipherOnly", "decipherOnly"]
    assert found == tuple(name for name, flag in zip(names, flags, strict=True) if flag)


def test_a_path_length_is_read_and_a_certificate_without_extensions() -> None:
    for length in (0, 1, 300):
        found = read_certificate(signed(KEY, x509.BasicConstraints(ca=True, path_length=length)))
        assert (found.is_authority, found.path_length, found.critical) == (True, length, frozenset())
    found = read_certificate(signed(ec.generate_private_key(ec.SECP384R1())))
    assert (found.is_authority, found.usages, found.names) == (False, (), ())
    assert (found.key_identifier, found.authority_identifier) == (None, None)
    assert (found.key.title, found.signature_hash) == ("ECDSA P-384", "SHA-384")


def test_keys_that_fips_refuses_are_told_from_those_it_takes() -> None:
    for key, strong in (
        (rsa.generate_private_key(65537, 1024), False),
        (ec.generate_private_key(ec.SECP256K1()), False),
        (ec.generate_private_key(ec.SECP521R1()), True),
        (ed25519.Ed25519PrivateKey.generate(), False),
    ):
        assert read_certificate(signed(key)).key.is_strong is strong


def test_a_life_past_2049_unknown_uses_and_other_names_are_read() -> None:
    found = read_certificate(signed(KEY, days=10_000))
    assert found.not_after == THEN + timedelta(days=10_000)
    name = x509.Name([x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b")])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.SERVER_AUTH])
    found = read_certificate(signed(KEY, usage, name=name))
    assert found.usages == ("1.3.6.1.5.5.7.3.3", "serverAuth")
    assert found.common_name == "1.2.840.113549.1.9.1=a@b"
    names = x509.SubjectAlternativeName(
        [x509.RFC822Name("a@b"), x509.DNSName("n"), x509.IPAddress(ipaddress.ip_address("::1"))]
    )
    assert read_certificate(signed(KEY, names)).names == ("n", "::1")


def test_a_public_key_alone_is_read() -> None:
    authority = Authority.create("signer", THEN, DAY, KeyType.ECDSA_P256)
    key = read_certificates(authority.certificate_pem)[0].key
    assert read_public_key(key.encoded) == key
    with pytest.raises(BundleError, match="no readable public key"):
        read_public_key(key.encoded[:-1])


BLOCK = certificate_blocks(
    Authority.create("s", THEN, DAY, KeyType.ECDSA_P256)
    .issue(server_profile("x", ADDRESSES, KeyType.ECDSA_P256), THEN, DAY)
    .certificate
)[0]


@settings(max_examples=500)
@given(st.integers(0, len(BLOCK) - 1), st.integers(0, 255))
def test_a_changed_octet_gives_a_certificate_or_a_bundle_error(position: int, octet: int) -> None:
    changed = BLOCK[:position] + bytes([octet]) + BLOCK[position + 1 :]
    try:
        assert isinstance(read_certificate(changed), Certificate)
    except BundleError:
        return


@given(st.one_of(st.binary(max_size=200), st.integers(0, len(BLOCK) - 1).map(lambda length: BLOCK[:length])))
def test_anything_else_is_a_bundle_error(content: bytes) -> None:
    with pytest.raises(BundleError, match="no readable certificate"):
        read_certificate(content)
