"""Certificates of `hosted render`, kept in a directory."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.spec import HostedSpec, Pki
from umbilical.cli import hosted_certificates
from umbilical.cli.hosted_certificates import keep, tell
from umbilical.pki.certificate import read_certificates
from umbilical.pki.errors import PkiError
from umbilical.pki.hosted_set import Renewal
from umbilical.pki.hosted_table import AGENT, CLUSTER
from umbilical.pki.profiles import KeyType

SPEC = hosted_spec(pki=Pki(key_type=KeyType.ECDSA_P256))


def renewed(folder: Path | None, spec: HostedSpec = SPEC, days: int = 0, *, rotate: bool = False) -> Renewal:
    now = datetime.now(UTC) + timedelta(days=days)
    return hosted_certificates.renewed(spec, folder, "cryptography", rotate=rotate, retire=False, now=now)


def kept(folder: Path) -> Renewal:
    renewal = renewed(folder)
    keep(renewal, folder)
    return renewal


def test_names_and_lives_come_from_the_spec() -> None:
    certificate = read_certificates(renewed(None).set.leaves[CLUSTER.id].certificate)[0]
    assert certificate.names == SPEC.agent_listener_names
    assert (certificate.not_after - certificate.not_before).days == 365


def test_what_is_kept_is_taken_up_again(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    first = kept(folder)
    again = renewed(folder)
    assert again.changes == ()
    assert again.set == first.set


def test_a_directory_for_keys_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    kept(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    kept(folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    kept(folder)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_what_is_due_is_renewed_in_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    first = kept(folder)
    renewal = renewed(folder, days=300)
    keep(renewal, folder)
    assert (folder / f"{AGENT.id}.crt").read_bytes() == renewal.set.leaves[AGENT.id].certificate
    assert renewal.set.leaves[AGENT.id] != first.set.leaves[AGENT.id]


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    assert len(kept(tmp_path).changes) == 9


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("somebody else's")
    with pytest.raises(PkiError, match="UMB553"):
        renewed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ca.crt"]


def test_keys_that_nobody_keeps_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    tell(renewed(None), None)
    assert "--pki DIR" in capsys.readouterr().err


def test_the_steps_of_a_rotation_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path)
    tell(renewed(tmp_path, rotate=True), tmp_path)
    told = capsys.readouterr()
    assert told.out == ""
    assert "--retire-signers" in told.err
