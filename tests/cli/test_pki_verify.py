"""`umbilical pki verify`: statuses and forms of the answer."""

import json
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.tunnel_directories import ADDRESS, make_directory, make_files, new_authority, now

from umbilical.cli import main
from umbilical.cli.pki_files import write_directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki")


def verify(folder: Path, *arguments: str) -> int:
    return main.run(["pki", "verify", str(folder), *arguments])


def test_a_good_directory_is_0_and_says_what_ends_first(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert verify(folder, "--address", ADDRESS) == 0
    printed = capfd.readouterr()
    assert "Agent and server together" in printed.out
    assert "28 passed, 0 failed" in printed.out
    assert "first to end: konnectivity-server, expires in 23h59m" in printed.err


def test_a_wrong_address_is_1(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert verify(folder, "--address", "10.0.0.10") == 1
    assert f"agents dial 10.0.0.10; the certificate names {ADDRESS}" in capfd.readouterr().out


def test_another_authority_is_1(folder: Path) -> None:
    write_directory(folder, {"ca.crt": new_authority().bundle}, overwrite=True)
    assert verify(folder) == 1


def test_expired_certificates_are_1(tmp_path: Path) -> None:
    then = now() - timedelta(hours=30)
    write_directory(tmp_path / "pki", make_files(new_authority(then), then), overwrite=False)
    assert verify(tmp_path / "pki") == 1


def test_too_little_time_is_1(folder: Path) -> None:
    assert verify(folder, "--min-left", "23h") == 0
    assert verify(folder, "--min-left", "25h") == 1


def test_json_and_junit_carry_the_same_findings(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert verify(folder, "-o", "json", "--address", "10.0.0.10") == 1
    value = json.loads(capfd.readouterr().out)
    assert (value["kind"], value["directory"]) == ("PkiReport", str(folder))
    failed = [finding["id"] for finding in value["findings"] if finding["outcome"] == "failed"]
    assert failed == ["server.names", "handshake.mutual"]
    assert verify(folder, "-o", "junit", "--address", "10.0.0.10") == 1
    suites = ElementTree.fromstring(capfd.readouterr().out)
    names = [case.get("name", "").split()[0] for case in suites.iter("testcase") if case.find("failure") is not None]
    assert names == failed


def test_without_a_client_certificate_none_is_missed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "client.crt").unlink()
    assert verify(folder) == 1
    (folder / "client.key").unlink()
    capfd.readouterr()
    assert verify(folder) == 0
    assert " client." not in capfd.readouterr().out


def test_an_agents_own_files_can_be_looked_at_alone(folder: Path) -> None:
    (folder / "server.crt").unlink()
    (folder / "server.key").unlink()
    assert verify(folder) == 1
    assert verify(folder, "--only", "agent") == 0


def test_colour_is_for_those_who_ask(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert verify(folder) == 0
    assert "\x1b[" not in capfd.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert verify(folder) == 0
    assert "\x1b[32m" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [(("none",), 3, "UMB156"), ((".", "--address", "a:1"), 3, "UMB150"), ((".", "--min-left", "x"), 2, "UMB001")],
)
def test_what_cannot_be_checked_is_told(
    arguments: tuple[str, ...], status: int, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["pki", "verify", str(tmp_path / arguments[0]), *arguments[1:]]) == status
    assert code in capfd.readouterr().err
