"""Nodes by ssh: any bytes come through, host keys are kept per node, failures are told."""

import base64
from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.recording_host import RecordingRunner

from umbilical.hardway.errors import HardwayError
from umbilical.hardway.libvirt.host import WRITE
from umbilical.hardway.libvirt.nodes import READ, Nodes, connect_by_ssh
from umbilical.host.ssh import Completed, LocalRunner, SshRunner

NODE = hardway.cluster().bootstrap


def _local(folder: Path) -> Nodes:
    """This machine in a node's place: the same commands, run for real."""
    return Nodes(lambda node: LocalRunner(), folder)


def test_any_bytes_are_written_and_read_back(tmp_path: Path) -> None:
    nodes, content = _local(tmp_path), bytes(range(256)) * 40
    path = tmp_path / "var" / "a file"
    nodes.write(NODE, str(path), content, 0o640)
    assert nodes.read(NODE, str(path)) == content
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert _local(tmp_path).read(NODE, str(tmp_path / "missing")) is None


def test_a_program_that_fails_is_no_error_of_its_own(tmp_path: Path) -> None:
    done = _local(tmp_path).run(NODE, ["sh", "-c", "echo no >&2; exit 3"], None, 60)
    assert (done.exit_code, done.complaint) == (3, "no")


def test_a_write_that_fails_is_told_with_what_to_look_at(tmp_path: Path) -> None:
    runner = RecordingRunner()
    runner.answers = [Completed(1, "", "mktemp: Read-only file system\n")]
    with pytest.raises(HardwayError) as told:
        Nodes(lambda node: runner, tmp_path).write(NODE, "/usr/bin/x", b"", 0o600)
    assert told.value.code == "UMB734"
    assert told.value.remedy == "ssh core@192.168.126.100 sudo ls -ld /usr/bin/x"


def test_an_answer_that_is_no_base64_is_told(tmp_path: Path) -> None:
    runner = RecordingRunner()
    runner.answers = [Completed(0, "motd!", "")]
    with pytest.raises(HardwayError, match="UMB734"):
        Nodes(lambda node: runner, tmp_path).read(NODE, "/etc/hostname")


def test_the_exact_lines(tmp_path: Path) -> None:
    runner = RecordingRunner()
    runner.answers = [Completed(0, base64.b64encode(b"x").decode(), "")]
    nodes = Nodes(lambda node: runner, tmp_path)
    nodes.read(NODE, "/etc/hostname")
    nodes.write(NODE, "/etc/x", b"", 0o600)
    assert runner.lines[0].startswith("sh -c ")
    assert READ == 'test -f "$1" || exit 44; exec base64 -w0 -- "$1"'
    assert runner.lines[0].endswith("' sh /etc/hostname")
    assert runner.lines[1].endswith(" sh 0600 /etc/x")
    assert "mktemp" in WRITE


def test_ssh_has_a_list_of_host_keys_for_each_node_and_forgets_one(tmp_path: Path) -> None:
    runner = connect_by_ssh(tmp_path, "~/.ssh/id_ed25519")(NODE)
    assert isinstance(runner, SshRunner)
    assert runner.host == "192.168.126.100"
    assert runner.uses_sudo
    assert runner.key == Path("~/.ssh/id_ed25519").expanduser()
    known = tmp_path / "known-hosts" / "bootstrap"
    known.write_text("key")
    nodes = Nodes(lambda node: runner, tmp_path / "known-hosts")
    for _ in range(2):
        nodes.forget(NODE)
    assert not known.exists()
