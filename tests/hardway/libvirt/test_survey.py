"""What the host has, as its own programs tell it."""

from tests.support.recording_host import RecordingHost

from umbilical.assets.hardway.cluster import Libvirt
from umbilical.hardway.libvirt.host import ThisHost
from umbilical.hardway.libvirt.survey import PROGRAMS, survey
from umbilical.host.errors import HostError
from umbilical.host.machine_records import Done
from umbilical.host.ssh import LocalRunner

LIBVIRT = Libvirt("ocp4", "ocp4", "/var/lib/libvirt/images/ocp4", "virbr-ocp4", "eth0", "rhcos-live.iso")


class _Told(RecordingHost):
    def _plain(self, command: list[str]) -> Done:
        match command:
            case ["nproc"]:
                return Done(0, b"16\n", b"")
            case ["cat", "/proc/meminfo"]:
                return Done(0, b"MemTotal:       65810000 kB\nMemFree:  1 kB\n", b"")
            case ["uname", "-m"]:
                return Done(0, b"x86_64\n", b"")
            case ["sh", "-c", text, "sh", *names] if "command -v" in text:
                return Done(0, "".join(f"{name}=/usr/bin/{name}\n" for name in names if name != "oc").encode(), b"")
            case ["sh", "-c", _, "sh", _]:
                return Done(0, b"Avail\n  512G\n", b"")
        return super()._plain(command)


def test_everything_is_counted_and_what_is_missing_is_empty() -> None:
    found = survey(_Told(), LIBVIRT)
    assert (found.cores, found.memory_mib, found.free_disk_gib) == (16, 64267, 512)
    assert found.programs["virsh"] == "/usr/bin/virsh"
    assert found.programs["oc"] == ""
    assert found.notes == ()


def test_a_libvirt_that_does_not_answer_is_noted() -> None:
    host = _Told()
    host.answers["virsh list --all"] = Done(1, b"", b"error: failed to connect to the hypervisor\n")
    host.answers["uname -m"] = Done(0, b"aarch64\n", b"")
    assert survey(host, LIBVIRT).notes == (
        "libvirt does not answer: error: failed to connect to the hypervisor",
        "the host is aarch64, and machines are defined for x86_64",
    )


def test_a_host_without_libvirt_is_surveyed_all_the_same() -> None:
    class Bare(_Told):
        def _plain(self, command: list[str]) -> Done:
            if command[:2] == ["sh", "-c"] and "command -v" in command[2]:
                return Done(0, "".join(f"{name}=\n" for name in command[4:]).encode(), b"")
            return super()._plain(command)

        def _virsh(self, command: list[str], stdin: bytes) -> Done:
            raise HostError("UMB803", "cannot start virsh", "No such file or directory", "install it")

    found = survey(Bare(), LIBVIRT)
    assert not any(found.programs.values())
    assert found.cores == 16
    assert found.notes == ()


def test_the_lines_work_on_a_real_machine() -> None:
    class Here(RecordingHost):
        def _plain(self, command: list[str]) -> Done:
            return ThisHost(LocalRunner()).run(command)

    found = survey(Here(), LIBVIRT)
    assert found.cores >= 1
    assert found.memory_mib > 0
    assert found.free_disk_gib >= 0
    assert set(found.programs) == set(PROGRAMS)
    assert found.programs["openssl"].endswith("/openssl")
