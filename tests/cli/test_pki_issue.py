"""`umbilical pki issue`: one more leaf."""

from pathlib import Path

import click
import pytest
from tests.support.tunnel_directories import make_directory, new_authority

from umbilical.cli import main
from umbilical.cli.pki_files import read_certificates_of
from umbilical.cli.pki_issue import leaf_name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki")


def issue(folder: Path, *arguments: str) -> int:
    return main.run(["pki", "issue", "--dir", str(folder), "--key-type", "ecdsa-p256", *arguments])


def test_a_name_of_its_own_is_common_name_and_file_name(folder: Path) -> None:
    assert issue(folder, "--kind", "agent", "--name", "edge-7") == 0
    found = read_certificates_of(folder / "edge-7.crt")[0]
    assert (found.common_name, found.usages) == ("edge-7", ("clientAuth",))
    assert (folder / "edge-7.key").stat().st_mode & 0o777 == 0o600


def test_a_server_gets_other_addresses(folder: Path) -> None:
    assert issue(folder, "--kind", "server", "--address", "10.0.0.10", "--address", "a.example", "--overwrite") == 0
    assert read_certificates_of(folder / "server.crt")[0].names == ("a.example", "10.0.0.10")
    assert main.run(["pki", "verify", str(folder), "--address", "10.0.0.10"]) == 0


def test_a_key_that_is_kept_elsewhere_signs(folder: Path, tmp_path: Path) -> None:
    (folder / "ca.key").rename(tmp_path / "safe.key")
    assert issue(folder, "--kind", "client", "--name", "two") == 2
    assert issue(folder, "--kind", "client", "--name", "two", "--ca-key", str(tmp_path / "safe.key")) == 0
    assert (folder / "two.crt").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (("--kind", "agent"), 3, "UMB801"),
        (("--kind", "server", "--name", "x"), 2, "--address"),
        (("--kind", "agent", "--name", "x", "--address", "10.0.0.9"), 2, "nobody dials"),
        (("--kind", "agent", "--name", "../x"), 2, "letters"),
        (("--kind", "agent", "--name", "ca"), 2, "not ca"),
        (("--kind", "root"), 2, "root"),
    ],
)
def test_what_cannot_be_issued_changes_nothing(
    arguments: tuple[str, ...], status: int, word: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    assert issue(folder, *arguments) == status
    assert word in capfd.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_key_of_another_signer_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "ca.key").write_bytes(new_authority().signer.pair.key)
    assert issue(folder, "--kind", "agent", "--name", "x") == 3
    assert "UMB151" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["a", "konnectivity-agent", "x" * 64, "a.b_c"])
def test_names_fit_into_a_certificate_and_a_directory(text: str) -> None:
    assert leaf_name(text) == text


@pytest.mark.parametrize("text", ["", ".hidden", "a/b", "x" * 65, "ca", "a b", "-x"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        leaf_name(text)
