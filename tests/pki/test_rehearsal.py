"""Handshakes in memory: each rule is broken once, and the host's OpenSSL says so."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.support.tunnel_directories import ADDRESS, make_files, new_authority, now

from umbilical.pki.bundle import decode_key
from umbilical.pki.rehearsal import PairFiles, belongs, connect, walk_client_chain, walk_server_chain


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def pair(folder: Path, name: str) -> PairFiles:
    return PairFiles(folder / f"{name}.crt", folder / f"{name}.key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "good", make_files(new_authority(), addresses=(ADDRESS, "::1", "api.example.com")))


def test_a_whole_set_is_accepted(folder: Path) -> None:
    ca, server, agent = folder / "ca.crt", pair(folder, "server"), pair(folder, "agent")
    assert belongs(server) is None
    assert walk_server_chain(server, ca) is None
    assert walk_client_chain(agent, ca) is None
    assert [connect(server, agent, ca, address) for address in (ADDRESS, "::1", "api.example.com")] == [None] * 3


def test_a_key_of_another_certificate_is_refused(folder: Path) -> None:
    refusal = belongs(PairFiles(folder / "server.crt", folder / "agent.key"))
    assert refusal is not None
    assert "mismatch" in refusal.why


def test_an_encrypted_key_is_refused_and_nobody_is_asked(folder: Path) -> None:
    key = decode_key((folder / "server.key").read_bytes())
    encryption = serialization.BestAvailableEncryption(b"x")
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    (folder / "server.key").write_bytes(locked)
    assert belongs(pair(folder, "server")) is not None


def test_a_missing_file_is_told(folder: Path) -> None:
    (folder / "server.key").unlink()
    refusal = belongs(pair(folder, "server"))
    assert refusal is not None
    assert "No such file" in refusal.why


def test_another_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    stranger = write(tmp_path / "stranger", make_files(new_authority())) / "ca.crt"
    for refusal in (
        walk_server_chain(pair(folder, "server"), stranger),
        walk_client_chain(pair(folder, "agent"), stranger),
        connect(pair(folder, "server"), pair(folder, "agent"), stranger, ADDRESS),
    ):
        assert refusal is not None
        assert not refusal.is_purpose
        # Both signers bear the same name, so it is the identifier or the signature that gives it away.
        assert any(word in refusal.why for word in ("issuer", "signature", "self-signed"))


def test_a_wrong_purpose_is_told_as_such(folder: Path) -> None:
    ca = folder / "ca.crt"
    refusals = [walk_server_chain(pair(folder, "agent"), ca), walk_client_chain(pair(folder, "server"), ca)]
    assert [refusal is not None and refusal.is_purpose for refusal in refusals] == [True, True]


def test_a_wrong_address_is_refused(folder: Path) -> None:
    for address in ("10.0.0.8", "::2", "other.example.com"):
        refusal = connect(pair(folder, "server"), pair(folder, "agent"), folder / "ca.crt", address)
        assert refusal is not None
        assert "mismatch" in refusal.why


def test_time_counts_for_a_connection_and_not_for_the_chain(tmp_path: Path) -> None:
    then = now() - timedelta(hours=30)
    authority = new_authority(then, timedelta(hours=40))
    folder = write(tmp_path / "old", make_files(authority, then, timedelta(hours=1)))
    ca, server, agent = folder / "ca.crt", pair(folder, "server"), pair(folder, "agent")
    assert walk_server_chain(server, ca) is None
    assert walk_client_chain(agent, ca) is None
    refusal = connect(server, agent, ca, ADDRESS)
    assert refusal is not None
    assert "expired" in refusal.why


def test_an_empty_authority_file_is_refused(folder: Path) -> None:
    (folder / "ca.crt").write_bytes(b"")
    for walk in (walk_server_chain, walk_client_chain):
        assert walk(pair(folder, "server"), folder / "ca.crt") is not None
