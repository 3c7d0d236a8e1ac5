"""The certificates that the node makes for itself, judged by the real `openssl verify`."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.support.scratch_node import ScratchNode

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.shell.scripts import certificate_script

pytestmark = [pytest.mark.root, pytest.mark.real("openssl")]
FILES: Final = [f"{role}/{name}" for role in ("agent", "server") for name in ("ca.crt", "tls.crt", "tls.key")]


@pytest.fixture
def node(tmp_path: Path) -> ScratchNode:
    node = ScratchNode(tmp_path / "node")
    node.write(OWN.certificate_script, certificate_script(), 0o555)
    return node


def make(node: ScratchNode, address: str = "10.0.0.5", hours: str = "24") -> Path:
    ended = node.run(OWN.certificate_script, [address, OWN.pki_directory, hours])
    assert ended.exit_code == 0, ended.stderr
    return node.path(OWN.pki_directory)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def verify(folder: Path, role: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["openssl", "verify", "-x509_strict", "-CAfile", str(folder / role / "ca.crt"), *arguments]
    return subprocess.run(
        [*command, str(folder / role / "tls.crt")], capture_output=True, text=True, timeout=30, check=False
    )


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00:1::5", "2001:db8::"])
def test_openssl_accepts_both_for_their_purpose_and_address(node: ScratchNode, address: str) -> None:
    folder = make(node, address)
    assert verify(folder, "server", "-purpose", "sslserver", "-verify_ip", address).returncode == 0
    assert verify(folder, "agent", "-purpose", "sslclient").returncode == 0


def test_openssl_refuses_them_for_anything_else(node: ScratchNode) -> None:
    folder = make(node)
    assert verify(folder, "server", "-purpose", "sslclient").returncode != 0
    assert verify(folder, "agent", "-purpose", "sslserver").returncode != 0
    assert verify(folder, "server", "-verify_ip", "10.0.0.6").returncode != 0


def test_they_begin_an_hour_back_and_end_when_asked(node: ScratchNode) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    folder = make(node, hours="6")
    after = datetime.now(UTC)
    for name in ("server/ca.crt", "server/tls.crt", "agent/tls.crt"):
        made = certificate(folder / name)
        assert before <= made.not_valid_before_utc + timedelta(hours=1) <= after
        assert before <= made.not_valid_after_utc - timedelta(hours=6) <= after


def test_their_extensions_are_those_of_our_own_pki(node: ScratchNode) -> None:
    folder = make(node)
    signer, server, agent = (
        certificate(folder / name) for name in ("server/ca.crt", "server/tls.crt", "agent/tls.crt")
    )
    for made, usage in ((server, ExtendedKeyUsageOID.SERVER_AUTH), (agent, ExtendedKeyUsageOID.CLIENT_AUTH)):
        assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
        own = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        named = made.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
        assert named.key_identifier == own.digest
    for made, is_authority in ((signer, True), (server, False), (agent, False)):
        constraints = made.extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.critical
        assert constraints.value.ca is is_authority
        key_usage = made.extensions.get_extension_for_class(x509.KeyUsage)
        assert key_usage.critical
        assert key_usage.value.key_cert_sign is is_authority
        assert made.signature_hash_algorithm is not None
        assert made.signature_hash_algorithm.name == "sha256"
        key = made.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        assert key.key_size == 2048


def test_each_end_gets_its_own_files_and_the_signers_key_is_gone(node: ScratchNode) -> None:
    folder = make(node)
    assert tree(folder) == FILES
    assert tree(folder.parent) == [f"pki/{name}" for name in FILES]
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())} == {0o700}


def test_keys_belong_to_their_certificates(node: ScratchNode) -> None:
    folder = make(node)
    for role in ("server", "agent"):
        key = serialization.load_pem_private_key((folder / role / "tls.key").read_bytes(), None)
        assert key.public_key() == certificate(folder / role / "tls.crt").public_key()


def test_two_runs_share_no_key_and_no_serial_number(node: ScratchNode) -> None:
    folder = make(node)
    first = {name: (folder / name).read_bytes() for name in FILES}
    serial = certificate(folder / "server/tls.crt").serial_number
    make(node)
    assert not {name for name in FILES if (folder / name).read_bytes() == first[name]}
    assert certificate(folder / "server/tls.crt").serial_number != serial


@pytest.mark.parametrize(
    "arguments", [[], ["10.0.0.5"], ["", OWN.pki_directory, "24"], ["null", OWN.pki_directory, "24"]]
)
def test_wrong_arguments_are_refused(node: ScratchNode, arguments: list[str]) -> None:
    ended = node.run(OWN.certificate_script, arguments)
    assert ended.exit_code == 2
    assert "usage" in ended.stderr
    assert not node.path(OWN.pki_directory).exists()


@pytest.mark.parametrize("address", ["[fd00:1::5]", "10.0.0.256", "host.example"])
def test_what_is_no_address_fails_in_openssls_words_and_keeps_the_old_ones(node: ScratchNode, address: str) -> None:
    folder = make(node)
    before = {name: (folder / name).read_bytes() for name in FILES}
    ended = node.run(OWN.certificate_script, [address, OWN.pki_directory, "24"])
    assert ended.exit_code != 0
    assert "bad ip address" in ended.stderr
    assert {name: (folder / name).read_bytes() for name in FILES} == before


def test_killed_at_any_line_it_leaves_all_of_them_or_none(node: ScratchNode) -> None:
    folder = node.path(OWN.pki_directory)
    for ended in node.run_killed_everywhere(OWN.certificate_script, ["10.0.0.5", OWN.pki_directory, "24"]):
        assert ended.exit_code in (-9, 0), ended.stderr
        if folder.exists():
            assert tree(folder) == FILES
            assert verify(folder, "server", "-verify_ip", "10.0.0.5").returncode == 0
    assert ended.exit_code == 0
    assert len(node.killed_at()) > 30
    assert tree(folder.parent) == [f"pki/{name}" for name in FILES]
