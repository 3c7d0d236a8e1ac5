"""Commands run here and by a real sshd on loopback, with keys made for the test."""

import getpass
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from umbilical.host.errors import HostError
from umbilical.host.processes import run, start
from umbilical.host.ssh import LocalRunner, SshRunner

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
HOSTILE = ["", "a b", "it's", '"', "$HOME", "`id`", "x;y", "new\nline", "-n", "*", "é", "\\"]


def test_a_local_command_gives_both_outputs_and_its_exit_code() -> None:
    done = LocalRunner().run(["bash", "-c", "cat; echo oops >&2; exit 3"], 10, b"in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in\n", "oops\n")
    assert not done.succeeded


def test_a_local_command_without_input_reads_an_end_at_once() -> None:
    assert LocalRunner().run(["cat"], 10).succeeded


def test_output_that_is_no_text_is_no_fault() -> None:
    assert LocalRunner().run(["bash", "-c", r"printf 'a\xff'"], 10).stdout == "a\ufffd"


def test_a_program_that_is_missing_is_told() -> None:
    with pytest.raises(HostError) as caught:
        LocalRunner().run(["no-such-program"], 10)
    assert caught.value.code == "UMB803"


def test_a_command_that_takes_too_long_is_ended_and_told() -> None:
    with pytest.raises(HostError, match=r"0\.2 s") as caught:
        LocalRunner().run(["sleep", "60"], 0.2)
    assert caught.value.code == "UMB176"


@pytest.mark.parametrize(("host", "user"), [("-oProxyCommand=id", "core"), ("", "core"), ("host", "-l"), ("host", "")])
def test_an_address_that_ssh_could_read_as_an_option_is_refused(host: str, user: str) -> None:
    with pytest.raises(HostError, match="no SSH address"):
        SshRunner(host, user)


def stand_in_for_sudo(folder: Path) -> Path:
    """The real one wants a user database and a policy; what it is asked to do is all that counts here."""
    script = folder / "bin" / "sudo"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho sudo $*\n")
    script.chmod(0o755)
    return script.parent


@dataclass(frozen=True)
class Daemon:
    folder: Path
    port: int

    @property
    def key(self) -> Path:
        return self.folder / "key"

    def runner(self, **options: object) -> SshRunner:
        settings = {"user": getpass.getuser(), "key": self.key, "port": self.port, **options}
        return SshRunner("127.0.0.1", **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("ssh daemon")
    for name in ("key", "host", "other"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], 30)
    (folder / "authorized").write_bytes((folder / "key.pub").read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # a root sshd refuses to start without its empty directory
    with start([SSHD, "-D", "-e", *_options(folder, port)], folder / "sshd.log", name="sshd") as daemon:
        daemon.wait_ready(lambda: _accepts(port), 20)
        yield Daemon(folder, port)


def _options(folder: Path, port: int) -> list[str]:
    settings = [
        "ListenAddress 127.0.0.1",
        f"Port {port}",
        f'HostKey "{folder / "host"}"',
        f'AuthorizedKeysFile "{folder / "authorized"}"',
        f'SetEnv PATH="{stand_in_for_sudo(folder)}:{os.environ["PATH"]}"',
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
    ]
    path = folder / "sshd_config"
    path.write_text("\n".join(settings) + "\n")
    return ["-f", str(path)]


def _accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 5):
        return True


needs_sshd = pytest.mark.real("sshd", "ssh", "ssh-keygen")


@needs_sshd
def test_a_remote_command_gives_both_outputs_and_its_exit_code(sshd: Daemon) -> None:
    with sshd.runner() as runner:
        done = runner.run(["bash", "-c", "cat; echo oops >&2; exit 3"], 20, b"in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in\n", "oops\n")


@needs_sshd
def test_every_word_arrives_as_it_was_given(sshd: Daemon) -> None:
    with sshd.runner() as runner:
        done = runner.run(["printf", "%s\\0", *HOSTILE], 20)
    assert done.stdout.split("\0")[:-1] == HOSTILE


@needs_sshd
def test_no_agent_no_display_and_no_terminal_reach_the_machine(sshd: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    monkeypatch.setenv("DISPLAY", ":0")
    with sshd.runner() as runner:
        done = runner.run(["bash", "-c", "echo ${SSH_AUTH_SOCK-}${DISPLAY-}; tty"], 20)
    assert done.stdout.splitlines() == ["", "not a tty"]


@needs_sshd
def test_a_key_that_is_not_accepted_is_told_and_nothing_is_asked(sshd: Daemon) -> None:
    with (
        sshd.runner(key=sshd.folder / "other") as runner,
        pytest.raises(HostError, match="Permission denied") as caught,
    ):
        runner.run(["true"], 20)
    assert caught.value.code == "UMB175"


@needs_sshd
def test_a_machine_that_does_not_answer_is_told(sshd: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = int(probe.getsockname()[1])
    with sshd.runner(port=free) as runner, pytest.raises(HostError, match="refused"):
        runner.run(["true"], 20)


@needs_sshd
def test_a_remote_command_that_takes_too_long_is_given_up(sshd: Daemon) -> None:
    with sshd.runner() as runner:
        runner.run(["true"], 20)
        began = time.monotonic()
        with pytest.raises(HostError) as caught:
            runner.run(["sleep", "50"], 1)
        assert time.monotonic() - began < 40
    assert caught.value.code == "UMB176"


@needs_sshd
def test_the_users_own_known_hosts_stay_as_they_are_and_ours_go_away(sshd: Daemon, tmp_path: Path) -> None:
    with sshd.runner() as runner:
        runner.run(["true"], 20)
        hosts = runner._hosts_file()
        assert b"ssh-ed25519" in hosts.read_bytes()
    assert not hosts.parent.exists()


@needs_sshd
def test_another_host_key_in_the_same_session_is_refused(sshd: Daemon, tmp_path: Path) -> None:
    kind, key, _ = (sshd.folder / "other.pub").read_text().split(" ", 2)
    hosts = tmp_path / "known %h hosts"
    hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    with sshd.runner(known_hosts=hosts) as runner, pytest.raises(HostError, match="Host key verification failed"):
        runner.run(["true"], 20)


@needs_sshd
def test_commands_run_by_sudo_where_asked_and_it_may_not_ask_back(sshd: Daemon) -> None:
    with sshd.runner(sudo=True) as runner:
        assert runner.run(["id", "-u"], 20).stdout == "sudo -n -- id -u\n"


def test_local_commands_run_by_sudo_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(stand_in_for_sudo(tmp_path)), prepend=os.pathsep)
    assert LocalRunner(sudo=True).run(["id", "-u"], 20).stdout == "sudo -n -- id -u\n"
