"""Commands run here and by a real sshd on loopback, with keys made for the test."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ssh_daemon import PROGRAMS, SshDaemon, ssh_daemon, stand_in_for_sudo

from umbilical.fault import HostError
from umbilical.host.commands import LocalRunner, SshRunner

HOSTILE = ["", "a b", "it's", '"', "$HOME", "`id`", "x;y", "new\nline", "-n", "*", "é", "\\"]


def test_a_local_command_gives_both_outputs_and_its_exit_code() -> None:
    done = LocalRunner().run(["bash", "-c", "cat; echo oops >&2; exit 3"], 10, b"in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in\n", "oops\n")
    assert not done.succeeded
    assert LocalRunner().run(["cat"], 10).succeeded
    assert LocalRunner().run(["bash", "-c", r"printf 'a\xff'"], 10).stdout == "a\ufffd"


def test_a_program_that_is_missing_or_takes_too_long_is_told() -> None:
    with pytest.raises(HostError) as caught:
        LocalRunner().run(["no-such-program"], 10)
    assert caught.value.code == "UMB803"
    with pytest.raises(HostError, match=r"0\.2 s") as caught:
        LocalRunner().run(["sleep", "60"], 0.2)
    assert caught.value.code == "UMB176"


def test_an_address_that_ssh_could_read_as_an_option_is_refused() -> None:
    for host, user in (("-oProxyCommand=id", "core"), ("", "core"), ("host", "-l"), ("host", "")):
        with pytest.raises(HostError, match="not a valid SSH destination"):
            SshRunner(host, user)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshDaemon]:
    with ssh_daemon(tmp_path_factory.mktemp("ssh daemon")) as daemon:
        yield daemon


needs_sshd = pytest.mark.real(*PROGRAMS)


@needs_sshd
def test_a_remote_command_gives_both_outputs_and_its_exit_code_and_every_word_arrives(sshd: SshDaemon) -> None:
    with sshd.runner() as runner:
        done = runner.run(["bash", "-c", "cat; echo oops >&2; exit 3"], 20, b"in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in\n", "oops\n")
    with sshd.runner() as runner:
        done = runner.run(["printf", "%s\\0", *HOSTILE], 20)
    assert done.stdout.split("\0")[:-1] == HOSTILE


@needs_sshd
def test_no_agent_no_display_no_terminal_reach_the_machine(sshd: SshDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    monkeypatch.setenv("DISPLAY", ":0")
    with sshd.runner() as runner:
        done = runner.run(["bash", "-c", "echo ${SSH_AUTH_SOCK-}${DISPLAY-}; tty"], 20)
    assert done.stdout.splitlines() == ["", "not a tty"]


@needs_sshd
def test_a_key_that_is_not_accepted_is_told_and_nothing_is_asked(sshd: SshDaemon) -> None:
    with (
        sshd.runner(key=sshd.folder / "other") as runner,
        pytest.raises(HostError, match="Permission denied") as caught,
    ):
        runner.run(["true"], 20)
    assert caught.value.code == "UMB175"


@needs_sshd
def test_a_machine_that_does_not_answer_is_told(sshd: SshDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = int(probe.getsockname()[1])
    with sshd.runner(port=free) as runner, pytest.raises(HostError, match="refused"):
        runner.run(["true"], 20)


@needs_sshd
def test_a_remote_command_that_takes_too_long_is_given_up(sshd: SshDaemon) -> None:
    with sshd.runner() as runner:
        runner.run(["true"], 20)
        began = time.monotonic()
        with pytest.raises(HostError) as caught:
            runner.run(["sleep", "50"], 1)
        assert time.monotonic() - began < 40
    assert caught.value.code == "UMB176"


@needs_sshd
def test_the_users_own_known_hosts_stay_as_they_are_and_ours_go_away(sshd: SshDaemon, tmp_path: Path) -> None:
    with sshd.runner() as runner:
        runner.run(["true"], 20)
        hosts = runner._hosts_file()
        assert b"ssh-ed25519" in hosts.read_bytes()
    assert not hosts.parent.exists()


@needs_sshd
def test_another_host_key_in_the_same_session_is_refused(sshd: SshDaemon, tmp_path: Path) -> None:
    kind, key, _ = (sshd.folder / "other.pub").read_text().split(" ", 2)
    hosts = tmp_path / "known %h hosts"
    hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    with sshd.runner(known_hosts=hosts) as runner, pytest.raises(HostError, match="Host key verification failed"):
        runner.run(["true"], 20)


@needs_sshd
def test_commands_run_by_sudo_where_asked_and_it_may_not_ask_back(sshd: SshDaemon) -> None:
    with sshd.runner(sudo=True) as runner:
        assert runner.run(["echo", "a  b"], 20).stdout == "a  b\n"
    assert sshd.sudo_log.read_text() == "-n -- echo a  b\n"


def test_local_commands_run_by_sudo_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(stand_in_for_sudo(tmp_path)), prepend=os.pathsep)
    assert LocalRunner(sudo=True).run(["echo", "a"], 20).stdout == "a\n"
    assert (tmp_path / "sudo.log").read_text() == "-n -- echo a\n"
