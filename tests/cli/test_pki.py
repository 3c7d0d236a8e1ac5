"""`umbilical pki` as a user runs it, through the whole life of a directory; and a real TLS connection with it."""

import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
from tests.support.tunnel_directories import openssl_verifies

from umbilical.cli import main, pki
from umbilical.pki.certificate import read_certificate

BACKENDS = ("cryptography", "openssl")


def run(*arguments: str) -> int:
    return main.run(["pki", *arguments])


def test_every_command_is_a_module_of_its_name() -> None:
    context = click.Context(pki.pki)
    for name in pki.COMMANDS:
        command = pki.pki.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str()


def test_without_a_command_the_help_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "Usage: umbilical pki" in capfd.readouterr().err


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
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key_type", ["rsa-2048", "ecdsa-p256"])
def test_a_directory_serves_real_connections(tmp_path: Path, backend: str, key_type: str) -> None:
    folder = tmp_path / "pki"
    hosts = ("--address", "127.0.0.1", "--address", "::1", "--address", "localhost")
    assert run("init", "--dir", str(folder), *hosts, "--backend", backend, "--key-type", key_type) == 0
    assert shake_hands(folder, "127.0.0.1", "agent") == "konnectivity-agent"
    assert shake_hands(folder, "::1", "client") == "konnectivity-client"
    assert run("verify", str(folder), "--address", "127.0.0.1", "--address", "::1", "--address", "localhost") == 0
    for options in (("-verify_ip", "127.0.0.1"), ("-verify_ip", "::1"), ("-verify_hostname", "localhost")):
        assert openssl_verifies(folder / "ca.crt", folder / "server.crt", "-purpose", "sslserver", *options)
    assert openssl_verifies(folder / "ca.crt", folder / "agent.crt", "-purpose", "sslclient")


@pytest.mark.real("openssl")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_directory_lives_through_a_rotation_of_its_signer(tmp_path: Path, backend: str) -> None:
    folder, old = tmp_path / "pki", tmp_path / "old"
    options = ("--backend", backend)
    assert run("init", "--dir", str(folder), "--address", "127.0.0.1", "--key-type", "ecdsa-p256", *options) == 0
    old.mkdir()
    for name in ("server.crt", "agent.crt"):
        (old / name).write_bytes((folder / name).read_bytes())
    assert run("rotate", "--dir", str(folder), "--signer", *options) == 0
    assert run("verify", str(folder)) == 0
    assert run("rotate", "--dir", str(folder), *options) == 0
    assert run("verify", str(folder), "--address", "127.0.0.1") == 0
    assert run("issue", "--dir", str(folder), "--kind", "agent", "--name", "edge", *options) == 0
    for leaf in (old / "server.crt", old / "agent.crt", *(folder / f"{n}.crt" for n in ("server", "agent", "edge"))):
        assert openssl_verifies(folder / "ca.crt", leaf), leaf
    assert shake_hands(folder, "127.0.0.1", "edge") == "edge"


@pytest.mark.real("openssl")
def test_everything_works_where_the_library_is_missing(tmp_path: Path) -> None:
    """A finder that knows no `cryptography` stands for the machines that have no wheel of it."""
    folder = tmp_path / "pki"
    script = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "cryptography":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from importlib import util
real = util.find_spec
util.find_spec = lambda name, package=None: None if name == "cryptography" else real(name, package)
from umbilical.cli.main import run
folder = {str(folder)!r}
commands = (
    ["init", "--dir", folder, "--address", "127.0.0.1", "--key-type", "ecdsa-p256"],
    ["inspect", folder],
    ["verify", folder],
    ["rotate", "--dir", folder, "--signer"],
    ["rotate", "--dir", folder],
    ["issue", "--dir", folder, "--kind", "client", "--name", "more"],
    ["verify", folder, "--address", "127.0.0.1"],
)
statuses = [run(["pki", *command]) for command in commands]
refused = run(["pki", "init", "--dir", folder + "2", "--address", "127.0.0.1", "--backend", "cryptography"])
print("STATUSES", *statuses, refused, "cryptography" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert "STATUSES 0 0 0 0 0 0 0 3 False" in done.stdout, done.stderr
    assert "UMB155" in done.stderr
