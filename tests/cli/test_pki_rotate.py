"""`umbilical pki rotate`: new leaves, or a new signer with an overlap."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.tunnel_directories import ADDRESS, make_directory, make_files, new_authority, now, openssl_verifies

from umbilical.cli import main
from umbilical.cli.pki_files import read_certificates_of, write_directory

LEAVES = {f"{name}.{kind}" for name in ("server", "agent", "client") for kind in ("crt", "key")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki", addresses=(ADDRESS, "api.example.com"))


def rotate(folder: Path, *arguments: str) -> int:
    return main.run(["pki", "rotate", "--dir", str(folder), *arguments])


def changed(folder: Path, before: dict[str, bytes]) -> set[str]:
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name for name in after if after[name] != before.get(name)}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_new_leaves_come_from_the_same_signer_with_the_same_names(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = content(folder)
    assert rotate(folder) == 0
    assert changed(folder, before) == LEAVES
    server = read_certificates_of(folder / "server.crt")[0]
    assert (server.names, server.key.title) == (("api.example.com", ADDRESS), "ECDSA P-256")
    assert main.run(["pki", "verify", str(folder), "--address", ADDRESS]) == 0
    assert "reload" in capfd.readouterr().err


def test_only_what_is_asked_for_is_renewed(folder: Path) -> None:
    before = content(folder)
    assert rotate(folder, "--only", "agent") == 0
    assert changed(folder, before) == {"agent.crt", "agent.key"}


@pytest.mark.real("openssl")
def test_with_a_new_signer_old_leaves_stay_and_still_verify(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = content(folder)
    assert rotate(folder, "--signer") == 0
    assert changed(folder, before) == {"ca.crt", "ca.key"}
    assert len(read_certificates_of(folder / "ca.crt")) == 2
    assert openssl_verifies(folder / "ca.crt", folder / "server.crt", "-verify_ip", ADDRESS)
    assert "in this order" in capfd.readouterr().err
    assert rotate(folder) == 0
    old = folder.parent / "old.crt"
    old.write_bytes(before["agent.crt"])
    assert openssl_verifies(folder / "ca.crt", old)
    assert openssl_verifies(folder / "ca.crt", folder / "agent.crt")
    issuer = read_certificates_of(folder / "agent.crt")[0].authority_identifier
    assert issuer == read_certificates_of(folder / "ca.crt")[0].key_identifier


def test_signers_that_have_expired_leave_the_bundle(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    then = now() - timedelta(hours=30)
    write_directory(folder, make_files(new_authority(then), then), overwrite=False)
    expired = read_certificates_of(folder / "ca.crt")[0]
    assert rotate(folder, "--signer") == 0
    bundle = read_certificates_of(folder / "ca.crt")
    assert len(bundle) == 1
    assert bundle[0] != expired
    assert rotate(folder) == 0
    assert main.run(["pki", "verify", str(folder), "--address", ADDRESS]) == 0


def test_a_directory_without_its_signers_key_needs_it_given(folder: Path, tmp_path: Path) -> None:
    (folder / "ca.key").rename(tmp_path / "safe.key")
    before = content(folder)
    assert rotate(folder) == 2
    assert changed(folder, before) == set()
    assert rotate(folder, "--ca-key", str(tmp_path / "safe.key")) == 0
    assert changed(folder, before) == LEAVES


@pytest.mark.parametrize(
    ("arguments", "status"), [(("--signer", "--only", "agent"), 2), (("--signer", "--ca-key", "x"), 2)]
)
def test_a_new_signer_is_made_alone(arguments: tuple[str, ...], status: int, folder: Path) -> None:
    before = content(folder)
    assert rotate(folder, *arguments) == status
    assert changed(folder, before) == set()


def test_where_nothing_is_nothing_can_be_renewed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rotate(tmp_path) == 2
    assert "pki init" in capfd.readouterr().err
    assert rotate(tmp_path, "--signer") == 3
    assert list(tmp_path.iterdir()) == []
