"""`umbilical pki init` and `issue`: what is signed, for whom, and for how long."""

import base64
import json
import os
import re
import shlex
import socket
import ssl
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.commands import Run
from tests.support.tunnel_directories import make_directory, new_authority, openssl_verifies

from umbilical.cli.pki.files import read_certificates_of
from umbilical.cli.pki.issue import leaf_name
from umbilical.cli.pki.options import at_least, lifetime, signer_pair
from umbilical.fault import PkiError
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificate
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType
from umbilical.tunnel import revocation

BACKENDS = ("cryptography", "openssl")


@pytest.fixture
def pki(umbilical: Run) -> Run:
    return partial(umbilical, "pki")


def contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server and an agent make of the directory; Python's defaults, nothing loosened."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    agent = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    agent.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return server, agent


def shake_hands(folder: Path, host: str, name: str) -> str:
    """Connect over loopback and return the common name that the server saw."""
    server, agent = contexts(folder, name)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    seen: list[str] = []
    with socket.create_server((host, 0), family=family) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=_answer, args=(listener, server, seen))
        thread.start()
        try:
            raw = socket.create_connection(listener.getsockname()[:2], timeout=20)
            with agent.wrap_socket(raw, server_hostname=host) as secured:
                assert secured.recv(2) == b"ok"
        finally:
            thread.join(30)
    return seen[0]


def _answer(listener: socket.socket, context: ssl.SSLContext, seen: list[str]) -> None:
    raw, _ = listener.accept()
    raw.settimeout(20)
    with context.wrap_socket(raw, server_side=True) as secured:
        peer = secured.getpeercert(binary_form=True)
        assert peer is not None
        seen.append(read_certificate(peer).common_name)
        secured.sendall(b"ok")


@pytest.mark.real("openssl")
@pytest.mark.parametrize(
    ("backend", "key_type"), [("cryptography", "ecdsa-p256"), ("openssl", "ecdsa-p256"), ("openssl", "rsa-2048")]
)
def test_a_directory_serves_real_connections(tmp_path: Path, backend: str, key_type: str, pki: Run) -> None:
    folder = tmp_path / "pki"
    hosts = ("--address", "127.0.0.1", "--address", "::1", "--address", "localhost")
    pki("init", "--dir", folder, *hosts, "--backend", backend, "--key-type", key_type)
    assert shake_hands(folder, "127.0.0.1", "agent") == "konnectivity-agent"
    assert shake_hands(folder, "::1", "client") == "konnectivity-client"
    pki("verify", folder, "--address", "127.0.0.1", "--address", "::1", "--address", "localhost")
    for options in (("-verify_ip", "127.0.0.1"), ("-verify_ip", "::1"), ("-verify_hostname", "localhost")):
        assert openssl_verifies(folder / "ca.crt", folder / "server.crt", "-purpose", "sslserver", *options)
    assert openssl_verifies(folder / "ca.crt", folder / "agent.crt", "-purpose", "sslclient")


@pytest.mark.real("openssl")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_directory_lives_through_a_rotation_of_its_signer(tmp_path: Path, backend: str, pki: Run) -> None:
    folder, old = tmp_path / "pki", tmp_path / "old"
    options = ("--backend", backend)
    pki("init", "--dir", folder, "--address", "127.0.0.1", "--key-type", "ecdsa-p256", *options)
    old.mkdir()
    for name in ("server.crt", "agent.crt"):
        (old / name).write_bytes((folder / name).read_bytes())
    pki("rotate", "--dir", folder, "--signer", *options)
    pki("verify", folder)
    pki("rotate", "--dir", folder, *options)
    pki("verify", folder, "--address", "127.0.0.1")
    pki("issue", "--dir", folder, "--kind", "agent", "--name", "edge", *options)
    for leaf in (old / "server.crt", old / "agent.crt", *(folder / f"{n}.crt" for n in ("server", "agent", "edge"))):
        assert openssl_verifies(folder / "ca.crt", leaf), leaf
    assert shake_hands(folder, "127.0.0.1", "edge") == "edge"


NOW = datetime.now(UTC)
EC = ("--key-type", "ecdsa-p256", "--backend", "cryptography")
FILES = {f"{name}.{kind}" for name in ("ca", "server", "agent", "client") for kind in ("crt", "key")}


@pytest.fixture
def init(pki: Run) -> Run:
    return partial(pki, "init", *EC, "--dir")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def keep(folder: Path, pair: KeyPair) -> tuple[str, ...]:
    (folder / "root.crt").write_bytes(pair.certificate)
    (folder / "root.key").write_bytes(pair.key)
    return ("--ca-cert", str(folder / "root.crt"), "--ca-key", str(folder / "root.key"))


def test_eight_files_are_written_with_their_modes_and_live_a_day_from_an_hour_ago_on(tmp_path: Path, init: Run) -> None:
    folder = tmp_path / "pki"
    printed = init(folder, "--address", "10.0.0.9", "--address", "[2001:db8::9]", "--address", "api.example.com")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {name: 0o600 if name.endswith(".key") else 0o644 for name in FILES}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    server = read_certificates_of(folder / "server.crt")[0]
    assert server.names == ("api.example.com", "10.0.0.9", "2001:db8::9")
    for name in ("ca", "server", "agent", "client"):
        certificate = read_certificates_of(folder / f"{name}.crt")[0]
        assert certificate.not_after - certificate.not_before == timedelta(hours=25)
    assert printed.out == ""
    assert f"wrote 8 files to {folder}" in printed.err


def test_a_second_run_changes_nothing_unless_asked(tmp_path: Path, init: Run) -> None:
    folder = tmp_path / "pki"
    init(folder, "--address", "10.0.0.9")
    before = files_of(folder)
    assert "UMB801" in init(folder, "--address", "10.0.0.9", status=3).err
    assert files_of(folder) == before
    init(folder, "--address", "10.0.0.9", "--overwrite")
    after = files_of(folder)
    assert all(after[name] != before[name] for name in FILES)


@pytest.mark.real("openssl")
def test_a_ca_that_exists_signs_and_its_key_is_not_copied(tmp_path: Path, init: Run) -> None:
    root = new_authority(lifetime=timedelta(days=365))
    given_options = keep(tmp_path, root.signer.pair)
    folder = tmp_path / "pki"
    init(folder, "--address", "10.0.0.9", *given_options)
    assert set(files_of(folder)) == FILES - {"ca.key"}
    assert (folder / "ca.crt").read_bytes() == root.bundle
    assert openssl_verifies(folder / "ca.crt", folder / "server.crt", "-verify_ip", "10.0.0.9")
    left = read_certificates_of(folder / "server.crt")[0].time_left(datetime.now(UTC))
    assert left < timedelta(days=1, minutes=1)


def test_a_leaf_is_cut_to_its_ca_and_the_user_is_told(tmp_path: Path, init: Run) -> None:
    root = new_authority(datetime.now(UTC) - timedelta(hours=20))
    told = init(tmp_path / "pki", "--address", "10.0.0.9", *keep(tmp_path, root.signer.pair)).err
    assert re.search(r"note: certificates expire in (3h59m|4h00m), not 24h00m: the CA konnectivity-signer", told)
    assert read_certificates_of(tmp_path / "pki" / "agent.crt")[0].not_after == root.certificate.not_after


def test_the_root_authority_of_an_installation_signs(tmp_path: Path, init: Run, pki: Run) -> None:
    root = Authority.create("root-ca", NOW, timedelta(days=3650), KeyType.RSA_2048, ["openshift"])
    state = {"*tls.RootCA": {name: base64.b64encode(pem).decode() for name, pem in _raw(root.pair).items()}}
    path = tmp_path / ".openshift_install_state.json"
    path.write_text(json.dumps(state))
    init(tmp_path / "pki", "--address", "10.0.0.9", "--from-install-state", path)
    assert read_certificates_of(tmp_path / "pki" / "agent.crt")[0].issuer_name == "root-ca"
    assert not (tmp_path / "pki" / "ca.key").exists()
    pki("verify", tmp_path / "pki", "--address", "10.0.0.9")


def _raw(pair: KeyPair) -> dict[str, bytes]:
    return {"CertRaw": pair.certificate, "KeyRaw": pair.key}


def test_an_expired_ca_is_refused_and_nothing_is_written(tmp_path: Path, init: Run) -> None:
    root = new_authority(NOW - timedelta(days=3))
    assert "UMB151" in init(tmp_path / "pki", "--address", "10.0.0.9", *keep(tmp_path, root.signer.pair), status=3).err
    assert not (tmp_path / "pki").exists()


def test_another_signers_key_does_not_stay_beside_a_given_ca(tmp_path: Path, init: Run, pki: Run) -> None:
    folder = make_directory(tmp_path / "pki")
    given_options = keep(tmp_path, new_authority().signer.pair)
    before = files_of(folder)
    told = init(folder, "--address", "10.0.0.9", "--overwrite", *given_options, status=3)
    assert "not the key of the given CA" in told.err
    assert files_of(folder) == before
    own = ("--ca-cert", str(folder / "ca.crt"), "--ca-key", str(folder / "ca.key"))
    init(folder, "--address", "10.0.0.10", "--overwrite", *own)
    pki("verify", folder, "--address", "10.0.0.10")


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, init: Run) -> None:
    for arguments, status, word in (
        ((), 2, "--address"),
        (("--address", "10.0.0.9:8091"), 3, "UMB150"),
        (("--address", "10.0.0.9", "--ca-cert", "x"), 2, "--ca-cert and --ca-key together"),
        (("--address", "10.0.0.9", "--ca-cert", "x", "--ca-key", "y"), 3, "UMB152"),
        (("--address", "10.0.0.9", "--ca-cert", "x", "--ca-key", "y", "--from-install-state", "z"), 2, "exclude"),
        (("--address", "10.0.0.9", "--from-install-state", "/dev/null"), 3, "UMB153"),
        (("--address", "10.0.0.9", "--ttl", "1m"), 2, "10m"),
        (("--address", "10.0.0.9", "--key-type", "rsa-1024"), 2, "rsa-1024"),
    ):
        assert word in init(tmp_path / "pki", *arguments, status=status).err
        assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path, init: Run) -> None:
    (tmp_path / "file").touch()
    assert "UMB157" in init(tmp_path / "file" / "pki", "--address", "10.0.0.9", status=3).err


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
    arguments = ["--dir", str(folder), "--address", "10.0.0.9", "--backend", "openssl"]
    command = [sys.executable, "-m", "umbilical", "pki", "init", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
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
def test_every_address_that_was_given_verifies(
    tmp_path_factory: pytest.TempPathFactory, init: Run, pki: Run, addresses: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("made") / "pki"
    options = [part for address in addresses for part in ("--address", address)]
    init(folder, *options)
    pki("verify", folder, *options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki")


@pytest.fixture
def issue(pki: Run) -> Run:
    return partial(pki, "issue", "--key-type", "ecdsa-p256", "--dir")


def test_a_name_of_its_own_is_common_name_and_file_name(folder: Path, issue: Run) -> None:
    issue(folder, "--kind", "agent", "--name", "edge-7")
    found = read_certificates_of(folder / "edge-7.crt")[0]
    assert (found.common_name, found.usages) == ("edge-7", ("clientAuth",))
    assert (folder / "edge-7.key").stat().st_mode & 0o777 == 0o600


def test_a_server_gets_other_addresses(folder: Path, issue: Run, pki: Run) -> None:
    issue(folder, "--kind", "server", "--address", "10.0.0.10", "--address", "a.example", "--overwrite")
    assert read_certificates_of(folder / "server.crt")[0].names == ("a.example", "10.0.0.10")
    pki("verify", folder, "--address", "10.0.0.10")


def test_what_cannot_be_issued_changes_nothing(folder: Path, issue: Run) -> None:
    for arguments, status, word in (
        (("--kind", "agent"), 3, "UMB801"),
        (("--kind", "server", "--name", "x"), 2, "--address"),
        (("--kind", "agent", "--name", "x", "--address", "10.0.0.9"), 2, "--address is for --kind server only"),
        (("--kind", "agent", "--name", "../x"), 2, "letters"),
        (("--kind", "agent", "--name", "ca"), 2, "ca is reserved"),
        (("--kind", "root"), 2, "root"),
    ):
        before = sorted(folder.iterdir())
        assert word in issue(folder, *arguments, status=status).err
        assert sorted(folder.iterdir()) == before


def test_a_key_of_another_signer_is_refused(folder: Path, issue: Run) -> None:
    (folder / "ca.key").write_bytes(new_authority().signer.pair.key)
    assert "UMB151" in issue(folder, "--kind", "agent", "--name", "x", status=3).err


def test_names_fit_into_a_certificate_and_a_directory_or_are_refused() -> None:
    for text in ("a", "konnectivity-agent", "x" * 64, "a.b_c"):
        assert leaf_name(text) == text
    for text in ("", ".hidden", "a/b", "x" * 65, "ca", "a b", "-x"):
        with pytest.raises(click.BadParameter):
            leaf_name(text)


def test_a_life_is_a_duration_that_makes_sense() -> None:
    for text, value in (("24h", timedelta(days=1)), ("10m", timedelta(minutes=10)), ("87600h", timedelta(days=3650))):
        assert lifetime(text) == value
    for text in ("1m", "0", "-24h", "87601h", "1d", "soon", ""):
        with pytest.raises(click.BadParameter):
            lifetime(text)
    for text, value in (("0", timedelta()), ("30m", timedelta(minutes=30)), ("2000000h", timedelta(days=3650))):
        assert at_least(text) == value


def test_the_signer_is_the_directorys_own_or_a_given_one(tmp_path: Path) -> None:
    folder, other = make_directory(tmp_path / "pki"), make_directory(tmp_path / "other")

    def options(certificate: Path | None, key: Path | None) -> dict[str, Path | None]:
        return {"folder": folder, "ca_cert": certificate, "ca_key": key}

    def pair(certificate: Path, key: Path) -> KeyPair:
        return KeyPair(certificate.read_bytes(), key.read_bytes())

    assert signer_pair(options(None, None)) == pair(folder / "ca.crt", folder / "ca.key")
    given = signer_pair(options(other / "ca.crt", other / "ca.key"))
    assert given == pair(other / "ca.crt", other / "ca.key")
    (folder / "ca.key").unlink()
    with pytest.raises(click.UsageError, match="--ca-key"):
        signer_pair(options(None, None))
    with pytest.raises(PkiError, match="UMB152"):
        signer_pair(options(None, tmp_path / "none"))


def test_openssl_writes_a_revocation_list_by_the_commands_of_the_docs(pki: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    pki("init", "--dir", folder, "--address", "127.0.0.1")
    pki("issue", "--dir", folder, "--kind", "agent", "--name", "edge-7")
    page = (Path(__file__).resolve().parents[3] / "docs" / "pki.md").read_text()
    commands = page.partition("## Revoking a certificate")[2].split("```")[1]
    subprocess.run(["bash", "-euc", commands], cwd=folder, check=True, capture_output=True, timeout=60)
    authority = ssl.PEM_cert_to_DER_cert((folder / "ca.crt").read_text())
    found = revocation.read(folder / "ca.crl", [authority])
    revoked, kept = (ssl.PEM_cert_to_DER_cert((folder / name).read_text()) for name in ("edge-7.crt", "agent.crt"))
    assert found.covers(revoked)
    assert not found.covers(kept)
