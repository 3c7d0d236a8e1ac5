"""Contexts for endpoints: whom they trust, what they show, and files that cannot be used."""

import ssl
from pathlib import Path

import pytest
from tests.support.tunnel_pki import FolderAuthority

from umbilical.hosted.endpoint_tls import EndpointTls, endpoint_context, read, untrusting, words
from umbilical.hosted.errors import HostedError
from umbilical.tunnel.settings import TlsFiles


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


def test_with_an_authority_it_alone_is_trusted(authority: FolderAuthority) -> None:
    context = endpoint_context(EndpointTls(TlsFiles(authority=authority.certificate_file)))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_without_one_the_machines_own_are(tmp_path: Path) -> None:
    context = endpoint_context(EndpointTls(TlsFiles()))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_nothing_is_verified_when_that_was_asked_for_or_for_a_second_look(authority: FolderAuthority) -> None:
    for context in (
        endpoint_context(EndpointTls(TlsFiles(), is_verified=False)),
        untrusting(endpoint_context(EndpointTls(TlsFiles(authority=authority.certificate_file)))),
    ):
        assert context.verify_mode is ssl.CERT_NONE
        assert not context.check_hostname


def test_files_that_cannot_be_used_are_named(authority: FolderAuthority, tmp_path: Path) -> None:
    first, second = authority.client("first"), authority.client("second")
    missing = tmp_path / "missing.crt"
    for files in (
        TlsFiles(authority=missing),
        TlsFiles(missing, first.key),
        TlsFiles(first.certificate, second.key),
        TlsFiles(authority=first.key),
    ):
        with pytest.raises(HostedError) as fault:
            endpoint_context(EndpointTls(files))
        assert fault.value.code == "UMB577"
        assert str(tmp_path) in fault.value.what


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(authority: FolderAuthority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    locked = tmp_path / "locked.key"
    key = ec.generate_private_key(ec.SECP256R1())
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(HostedError, match="encrypted"):
        endpoint_context(EndpointTls(TlsFiles(authority.client("somebody").certificate, locked)))


def test_what_is_no_certificate_is_none() -> None:
    assert read(None) is None
    assert read(b"") is None
    assert read(b"no certificate") is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionError(), "the connection was closed"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"), "wrong version number"),
    ],
)
def test_errors_are_told_in_words(error: OSError, said: str) -> None:
    assert said in words(error)
