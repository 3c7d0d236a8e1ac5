"""`umbilical pki init`: what it writes, what it refuses, and what it never shows."""

import base64
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.tunnel_directories import make_directory, new_authority, openssl_verifies

from umbilical.cli import main
from umbilical.cli.pki_files import read_certificates_of
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType

NOW = datetime.now(UTC)
EC = ("--key-type", "ecdsa-p256", "--backend", "cryptography")
FILES = {f"{name}.{kind}" for name in ("ca", "server", "agent", "client") for kind in ("crt", "key")}


def init(folder: Path, *arguments: str) -> int:
    return main.run(["pki", "init", "--dir", str(folder), *EC, *arguments])


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def keep(folder: Path, pair: KeyPair) -> tuple[str, ...]:
    (folder / "root.crt").write_bytes(pair.certificate)
    (folder / "root.key").write_bytes(pair.key)
    return ("--ca-cert", str(folder / "root.crt"), "--ca-key", str(folder / "root.key"))


def test_eight_files_are_written_with_their_modes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pki"
    assert init(folder, "--address", "10.0.0.9", "--address", "[2001:db8::9]", "--address", "api.example.com") == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {name: 0o600 if name.endswith(".key") else 0o644 for name in FILES}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    server = read_certificates_of(folder / "server.crt")[0]
    assert server.names == ("api.example.com", "10.0.0.9", "2001:db8::9")
    printed = capfd.readouterr()
    assert printed.out == ""
    assert f"wrote 8 files to {folder}" in printed.err


def test_everything_lives_a_day_from_an_hour_ago_on(tmp_path: Path) -> None:
    assert init(tmp_path / "pki", "--address", "a.example") == 0
    for name in ("ca", "server", "agent", "client"):
        certificate = read_certificates_of(tmp_path / "pki" / f"{name}.crt")[0]
        assert certificate.not_after - certificate.not_before == timedelta(hours=25)


def test_a_second_run_changes_nothing_unless_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pki"
    assert init(folder, "--address", "10.0.0.9") == 0
    before = files_of(folder)
    assert init(folder, "--address", "10.0.0.9") == 3
    assert "UMB801" in capfd.readouterr().err
    assert files_of(folder) == before
    assert init(folder, "--address", "10.0.0.9", "--overwrite") == 0
    after = files_of(folder)
    assert all(after[name] != before[name] for name in FILES)


@pytest.mark.real("openssl")
def test_a_ca_that_exists_signs_and_its_key_is_not_copied(tmp_path: Path) -> None:
    root = new_authority(lifetime=timedelta(days=365))
    given_options = keep(tmp_path, root.signer.pair)
    folder = tmp_path / "pki"
    assert init(folder, "--address", "10.0.0.9", *given_options) == 0
    assert set(files_of(folder)) == FILES - {"ca.key"}
    assert (folder / "ca.crt").read_bytes() == root.bundle
    assert openssl_verifies(folder / "ca.crt", folder / "server.crt", "-verify_ip", "10.0.0.9")
    left = read_certificates_of(folder / "server.crt")[0].time_left(datetime.now(UTC))
    assert left < timedelta(days=1, minutes=1)


def test_a_leaf_is_cut_to_its_ca_and_the_user_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = new_authority(datetime.now(UTC) - timedelta(hours=20))
    assert init(tmp_path / "pki", "--address", "10.0.0.9", *keep(tmp_path, root.signer.pair)) == 0
    told = capfd.readouterr().err
    assert re.search(r"note: certificates end in (3h59m|4h00m), not 24h00m: konnectivity-signer", told)
    assert read_certificates_of(tmp_path / "pki" / "agent.crt")[0].not_after == root.certificate.not_after


def test_the_root_authority_of_an_installation_signs(tmp_path: Path) -> None:
    root = Authority.create("root-ca", NOW, timedelta(days=3650), KeyType.RSA_2048, ["openshift"])
    state = {"*tls.RootCA": {name: base64.b64encode(pem).decode() for name, pem in _raw(root.pair).items()}}
    path = tmp_path / ".openshift_install_state.json"
    path.write_text(json.dumps(state))
    assert init(tmp_path / "pki", "--address", "10.0.0.9", "--from-install-state", str(path)) == 0
    assert read_certificates_of(tmp_path / "pki" / "agent.crt")[0].issuer_name == "root-ca"
    assert not (tmp_path / "pki" / "ca.key").exists()
    assert main.run(["pki", "verify", str(tmp_path / "pki"), "--address", "10.0.0.9"]) == 0


def _raw(pair: KeyPair) -> dict[str, bytes]:
    return {"CertRaw": pair.certificate, "KeyRaw": pair.key}


def test_an_expired_ca_is_refused_and_nothing_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = new_authority(NOW - timedelta(days=3))
    assert init(tmp_path / "pki", "--address", "10.0.0.9", *keep(tmp_path, root.signer.pair)) == 3
    assert "UMB151" in capfd.readouterr().err
    assert not (tmp_path / "pki").exists()


def test_another_signers_key_does_not_stay_beside_a_given_ca(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = make_directory(tmp_path / "pki")
    given_options = keep(tmp_path, new_authority().signer.pair)
    before = files_of(folder)
    assert init(folder, "--address", "10.0.0.9", "--overwrite", *given_options) == 3
    assert "not the key of the given CA" in capfd.readouterr().err
    assert files_of(folder) == before
    own = ("--ca-cert", str(folder / "ca.crt"), "--ca-key", str(folder / "ca.key"))
    assert init(folder, "--address", "10.0.0.10", "--overwrite", *own) == 0
    assert main.run(["pki", "verify", str(folder), "--address", "10.0.0.10"]) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        ((), 2, "--address"),
        (("--address", "10.0.0.9:8091"), 3, "UMB150"),
        (("--address", "10.0.0.9", "--ca-cert", "x"), 2, "go together"),
        (("--address", "10.0.0.9", "--ca-cert", "x", "--ca-key", "y"), 3, "UMB152"),
        (("--address", "10.0.0.9", "--ca-cert", "x", "--ca-key", "y", "--from-install-state", "z"), 2, "exclude"),
        (("--address", "10.0.0.9", "--from-install-state", "/dev/null"), 3, "UMB153"),
        (("--address", "10.0.0.9", "--ttl", "1m"), 2, "10m"),
        (("--address", "10.0.0.9", "--key-type", "rsa-1024"), 2, "rsa-1024"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    arguments: tuple[str, ...], status: int, word: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path / "pki", *arguments) == status
    assert word in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert init(tmp_path / "file" / "pki", "--address", "10.0.0.9") == 3
    assert "UMB157" in capfd.readouterr().err


@pytest.mark.real("openssl")
def test_no_key_is_seen_in_arguments_or_output(tmp_path: Path) -> None:
    """A stand-in on PATH notes its arguments and hands over to the real program."""
    recorder = tmp_path / "bin" / "openssl"
    recorder.parent.mkdir()
    log = tmp_path / "arguments"
    real = subprocess.run(["bash", "-c", "command -v openssl"], capture_output=True, text=True, timeout=30, check=True)
    lines = ("#!/bin/bash", f'printf "%s\\n" "$*" >> {shlex.quote(str(log))}', f'exec {real.stdout.strip()} "$@"', "")
    recorder.write_text("\n".join(lines))
    recorder.chmod(0o755)
    folder = tmp_path / "pki"
    environment = {**os.environ, "PATH": f"{recorder.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    arguments = ["-m", "umbilical", "pki", "init", "--dir", str(folder), "--address", "10.0.0.9"]
    done = subprocess.run(
        [sys.executable, *arguments, "--backend", "openssl"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = log.read_text() + done.stdout + done.stderr
    assert seen.count("genpkey") == 4
    keys = [path.read_text().splitlines()[1:-1] for path in folder.glob("*.key")]
    assert len(keys) == 4
    assert not [line for key in keys for line in key if line in seen]
    assert list((tmp_path / "tmp").iterdir()) == []


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.ip_addresses(v=4).filter(lambda found: not found.is_multicast and not found.is_unspecified).map(str),
            st.ip_addresses(v=6).filter(lambda found: not found.is_multicast and not found.is_unspecified).map(str),
            st.from_regex(r"[a-z][a-z0-9]{0,8}(\.[a-z]{2,5}){1,3}", fullmatch=True),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_address_that_was_given_verifies(tmp_path_factory: pytest.TempPathFactory, addresses: list[str]) -> None:
    folder = tmp_path_factory.mktemp("made") / "pki"
    options = [part for address in addresses for part in ("--address", address)]
    assert init(folder, *options) == 0
    assert main.run(["pki", "verify", str(folder), *options]) == 0
