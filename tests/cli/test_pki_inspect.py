"""`umbilical pki inspect`: certificates in words."""

import json
from pathlib import Path

import pytest
from tests.support.tunnel_directories import ADDRESS, make_directory, now

from umbilical.cli import main
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import DAY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki")


def test_the_short_form_is_one_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pki", "inspect", str(folder / "server.crt"), "--short"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith("X.509 server (ECDSA P-256) [Serial ")
    assert f"CN=konnectivity-server SAN IP:{ADDRESS} expires in 23h59m signed-by konnectivity-signer" in line


def test_of_several_files_each_line_names_its_own(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pki", "inspect", "--short", str(folder)]) == 0
    names = [line.partition(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert names == [str(folder / f"{name}.crt") for name in ("agent", "ca", "client", "server")]


def test_the_long_form_tells_all(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pki", "inspect", str(folder / "server.crt"), str(folder / "ca.crt")]) == 0
    text = capfd.readouterr().out
    for word in ("server, ECDSA P-256, SHA-256", "O=openshift, CN=konnectivity-signer", f"IP:{ADDRESS}", "serverAuth"):
        assert word in text
    assert text.count("\n\n") == 1


def test_json_is_for_programs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["pki", "inspect", "-o", "json", str(folder / "server.crt")]) == 0
    value = json.loads(capfd.readouterr().out)
    assert (value["apiVersion"], value["kind"]) == ("umbilical.dev/v1alpha1", "CertificateList")
    (item,) = value["items"]
    assert (item["commonName"], item["ipAddresses"], item["usages"]) == (
        "konnectivity-server",
        [ADDRESS],
        ["serverAuth"],
    )
    assert 86_000 < item["secondsLeft"] <= 86_400


def test_a_name_cannot_move_the_cursor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    evil = Authority.create("\x1b[2Jgone", now(), DAY, KeyType.ECDSA_P256)
    (tmp_path / "evil.crt").write_bytes(evil.certificate_pem)
    for form in (["--short"], [], ["-o", "json"]):
        assert main.run(["pki", "inspect", str(tmp_path / "evil.crt"), *form]) == 0
        printed = capfd.readouterr().out
        assert "\x1b" not in printed
        assert "gone" in printed


@pytest.mark.parametrize(("name", "why"), [("server.key", "private key"), ("none", "No such file"), ("ca", "no .crt")])
def test_what_is_no_certificate_is_told(folder: Path, name: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "ca").mkdir()
    assert main.run(["pki", "inspect", str(folder / name)]) == 3
    printed = capfd.readouterr()
    assert (printed.out, "UMB152" in printed.err, why in printed.err) == ("", True, True)
