"""What our authority signs is judged by our own eyes and by the real `openssl verify`."""

import ipaddress
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from umbilical.pki.authority import BACKDATE, Authority
from umbilical.pki.bundle import BundleError, KeyPair, decode_certificates
from umbilical.pki.profiles import KeyType, Profile, client_profile, server_profile

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
SERVER = server_profile("server", ["localhost", "127.0.0.1", "::1"], KeyType.ECDSA_P256)
CLIENT = client_profile("admin", ["system:masters"], KeyType.ECDSA_P256)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("umbilical test CA", NOW, DAY, KeyType.ECDSA_P256)


def _certificate(pair: KeyPair) -> x509.Certificate:
    return decode_certificates(pair.certificate)[0]


def _openssl_verify(folder: Path, authority: bytes, leaf: bytes, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "ca.crt").write_bytes(authority)
    (folder / "leaf.crt").write_bytes(leaf)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", *options, "leaf.crt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)


def test_a_leaf_begins_an_hour_ago_and_ends_with_its_lifetime(authority: Authority) -> None:
    certificate = _certificate(authority.issue(SERVER, NOW, DAY))
    start = NOW.replace(microsecond=0)
    assert certificate.not_valid_before_utc == start - BACKDATE
    assert certificate.not_valid_after_utc == start + DAY


def test_a_server_certificate_carries_names_and_addresses(authority: Authority) -> None:
    extensions = _certificate(authority.issue(SERVER, NOW, DAY)).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    expected = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == expected


def test_a_client_certificate_carries_its_groups_and_no_names(authority: Authority) -> None:
    certificate = _certificate(authority.issue(CLIENT, NOW, DAY))
    assert certificate.subject.rfc4514_string() == "CN=admin,O=system:masters"
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)


@pytest.mark.parametrize("profile", [SERVER, CLIENT], ids=["server", "client"])
def test_constraints_and_usage_are_critical_and_no_leaf_may_sign(authority: Authority, profile: Profile) -> None:
    extensions = _certificate(authority.issue(profile, NOW, DAY)).extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (True, True, False)


def test_only_an_rsa_leaf_may_encipher_keys(authority: Authority) -> None:
    rsa_leaf = _certificate(authority.issue(server_profile("s", ["s"]), NOW, DAY))
    ecdsa_leaf = _certificate(authority.issue(SERVER, NOW, DAY))
    usages = [leaf.extensions.get_extension_for_class(x509.KeyUsage).value for leaf in (rsa_leaf, ecdsa_leaf)]
    assert [usage.key_encipherment for usage in usages] == [True, False]


def test_key_identifiers_link_leaf_and_authority(authority: Authority) -> None:
    own = decode_certificates(authority.certificate_pem)[0].extensions
    leaf = _certificate(authority.issue(CLIENT, NOW, DAY)).extensions
    expected = own.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == expected
    assert leaf.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest != expected


def test_serial_numbers_differ(authority: Authority) -> None:
    serials = {_certificate(authority.issue(CLIENT, NOW, DAY)).serial_number for _ in range(3)}
    assert len(serials) == 3


def test_a_loaded_authority_signs_like_the_one_that_was_kept(authority: Authority) -> None:
    again = Authority.load(authority.pair)
    leaf = again.issue(SERVER, NOW, DAY)
    assert _certificate(leaf).issuer == decode_certificates(authority.certificate_pem)[0].subject
    _certificate(leaf).verify_directly_issued_by(decode_certificates(authority.certificate_pem)[0])


def test_a_key_of_another_authority_is_refused(authority: Authority) -> None:
    other = Authority.create("other", NOW, DAY, KeyType.ECDSA_P256)
    with pytest.raises(BundleError, match="does not belong"):
        Authority.load(KeyPair(authority.certificate_pem, other.pair.key))


def test_a_leaf_is_refused_as_an_authority(authority: Authority) -> None:
    with pytest.raises(BundleError, match="may not sign"):
        Authority.load(authority.issue(SERVER, NOW, DAY))


@pytest.mark.real("openssl")
@pytest.mark.parametrize("key_type", list(KeyType))
def test_openssl_accepts_the_chain_for_its_purpose_and_names_only(key_type: KeyType, tmp_path: Path) -> None:
    authority = Authority.create("umbilical CA", NOW, DAY, key_type)
    server = authority.issue(server_profile("s", ["localhost", "127.0.0.1"], key_type), NOW, DAY).certificate
    client = authority.issue(client_profile("c", key_type=key_type), NOW, DAY).certificate
    ca = authority.certificate_pem
    accepted = [
        _openssl_verify(tmp_path, ca, server, "-purpose", "sslserver", "-verify_hostname", "localhost"),
        _openssl_verify(tmp_path, ca, server, "-purpose", "sslserver", "-verify_ip", "127.0.0.1"),
        _openssl_verify(tmp_path, ca, client, "-purpose", "sslclient"),
    ]
    refused = [
        _openssl_verify(tmp_path, ca, server, "-purpose", "sslclient"),
        _openssl_verify(tmp_path, ca, client, "-purpose", "sslserver"),
        _openssl_verify(tmp_path, ca, server, "-verify_hostname", "elsewhere"),
    ]
    assert [done.returncode for done in accepted] == [0, 0, 0], accepted
    assert all(done.returncode != 0 for done in refused), refused


@pytest.mark.real("openssl")
def test_openssl_refuses_an_expired_leaf(authority: Authority, tmp_path: Path) -> None:
    leaf = authority.issue(SERVER, NOW - timedelta(hours=3), timedelta(hours=1)).certificate
    done = _openssl_verify(tmp_path, authority.certificate_pem, leaf)
    assert "certificate has expired" in done.stderr
