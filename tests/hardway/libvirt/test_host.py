"""The one way to the host: what fails is told with its command line, and files are whole."""

import subprocess
from pathlib import Path

import pytest
from tests.support.recording_host import RecordingHost

from umbilical.hardway.errors import HardwayError
from umbilical.hardway.libvirt.host import ThisHost, do, holds, put
from umbilical.host.machine_records import Done
from umbilical.host.ssh import LocalRunner


def test_a_command_that_fails_is_told_with_its_line_and_what_it_said() -> None:
    host = RecordingHost()
    host.answers["virsh net-start 'a b'"] = Done(1, b"", b"error: Network not found\n")
    with pytest.raises(HardwayError) as told:
        do(host, "virsh", "net-start", "a b")
    assert str(told.value).splitlines() == [
        "UMB730 virsh failed on the host of the machines",
        "  why: error: Network not found",
        "  next: run it by hand: virsh net-start 'a b'",
    ]


def test_this_host_runs_commands_for_real() -> None:
    host = ThisHost(LocalRunner())
    assert do(host, "cat", stdin=b"words") == "words"
    assert holds(host, "true")
    assert not holds(host, "false")


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_is_written_whole_with_its_mode_and_nothing_beside_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "new folder" / "etcd.yaml"
    for content in (b"first", bytes(range(256))):
        put(ThisHost(LocalRunner()), str(path), content, mode)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == mode
    assert [one.name for one in path.parent.iterdir()] == ["etcd.yaml"]


def test_while_a_file_is_written_its_name_begins_with_a_dot(tmp_path: Path) -> None:
    """A kubelet would run a half of a pod otherwise."""
    from umbilical.hardway.libvirt.host import WRITE

    command = ["sh", "-c", WRITE, "sh", "0600", str(tmp_path / "pod.yaml")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        process.stdin.write(b"half")
        process.stdin.flush()
        while not (names := [one.name for one in tmp_path.iterdir()]):
            assert process.poll() is None
        assert all(name.startswith(".pod.yaml.") for name in names)
    finally:
        process.stdin.close()
        assert process.wait(60) == 0
    assert (tmp_path / "pod.yaml").read_bytes() == b"half"
