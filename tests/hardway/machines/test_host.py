"""The host of the machines: commands, files, its plan, its survey and its checks."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.recording_host import RecordingHost

from umbilical.fault import HardwayError, HostError
from umbilical.hardway.artifacts.infrastructure.host_plan import HostAction, host_actions, plan_json
from umbilical.hardway.config.cluster import Libvirt
from umbilical.hardway.machines.host import ThisHost, do, holds, put
from umbilical.hardway.machines.host_services import HostPlan, read_plan
from umbilical.hardway.machines.inspection import PROGRAMS, inspect, survey
from umbilical.host.commands import LocalRunner
from umbilical.host.machine_records import Done, InfraProbe

ACTIONS = [HostAction(name, f"why {name}", f"check {name}", f"do {name}", f"undo {name}") for name in ("a", "b", "c")]
LIBVIRT = Libvirt("ocp4", "ocp4", "/var/lib/libvirt/images/ocp4", "virbr-ocp4", "eth0", "rhcos-live.iso")
CLUSTER = hardway.cluster(masters=1, workers=1)
DIG = "dig +short +time=2 +tries=2 @192.168.126.1"
RIGHT = {
    f"{DIG} A api.ocp4.example.com": b"192.168.126.10\n",
    f"{DIG} A api-int.ocp4.example.com": b"192.168.126.10\n",
    f"{DIG} A any.apps.ocp4.example.com": b"192.168.126.11\n",
    f"{DIG} A bootstrap.ocp4.example.com": b"192.168.126.100\n",
    f"{DIG} A master-0.ocp4.example.com": b"192.168.126.101\n",
    f"{DIG} A worker-0.ocp4.example.com": b"192.168.126.110\n",
    f"{DIG} -x 192.168.126.100": b"bootstrap.ocp4.example.com.\n",
    f"{DIG} -x 192.168.126.101": b"master-0.ocp4.example.com.\netcd-0.ocp4.example.com.\n",
    f"{DIG} -x 192.168.126.110": b"worker-0.ocp4.example.com.\n",
    "ss --no-header -ltn": b"LISTEN 0 4096 192.168.126.10:6443 0.0.0.0:*\n",
}


def test_a_command_that_fails_is_told_with_its_line_and_what_it_said() -> None:
    host = RecordingHost()
    host.answers["virsh net-start 'a b'"] = Done(1, b"", b"error: Network not found\n")
    with pytest.raises(HardwayError) as told:
        do(host, "virsh", "net-start", "a b")
    assert str(told.value).splitlines() == [
        "UMB730 virsh failed on the host of the machines",
        "  why: error: Network not found",
        "  next: run it on that host: virsh net-start 'a b'",
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
    from umbilical.hardway.machines.host import WRITE

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


def _plan(folder: Path, host: RecordingHost) -> HostPlan:
    return HostPlan(host, folder / ".umbilical" / "host-plan.json")


def test_what_the_artifact_says_comes_back() -> None:
    cluster = hardway.cluster()
    assert cluster.libvirt is not None
    wanted = [one.id for one in host_actions(cluster, cluster.libvirt)]
    assert [one.id for one in read_plan(plan_json(cluster))] == wanted


def test_only_what_is_missing_is_done_and_only_that_undone_the_last_first(tmp_path: Path) -> None:
    host = RecordingHost()
    host.held = {"b"}
    _plan(tmp_path, host).apply(ACTIONS)
    assert [line for line in host.lines if "'do" in line] == ["bash -c 'do a'", "bash -c 'do c'"]
    _plan(tmp_path, host).undo()
    assert [line for line in host.lines if "undo" in line] == ["bash -c 'undo c'", "bash -c 'undo a'"]
    assert host.held == {"b"}
    before = len(host.lines)
    _plan(tmp_path, host).undo()
    assert len(host.lines) == before


def test_it_is_on_record_before_it_is_done(tmp_path: Path) -> None:
    record = tmp_path / ".umbilical" / "host-plan.json"
    seen: list[list[str]] = []

    class Looking(RecordingHost):
        # What it returns is passed on as it is.
        def _shell(self, text: str) -> object:  # type: ignore[override]
            if text.startswith("do "):
                seen.append([one["id"] for one in json.loads(record.read_bytes())["actions"]])
            return super()._shell(text)

    _plan(tmp_path, Looking()).apply(ACTIONS)
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_what_is_away_already_is_not_taken_away_again(tmp_path: Path) -> None:
    host = RecordingHost()
    _plan(tmp_path, host).apply(ACTIONS)
    host.held.discard("b")
    host.lines.clear()
    _plan(tmp_path, host).undo()
    assert [line for line in host.lines if "undo" in line] == ["bash -c 'undo c'", "bash -c 'undo a'"]


def test_probes_say_why_something_missing_matters(tmp_path: Path) -> None:
    host = RecordingHost()
    host.held = {"a"}
    probes = _plan(tmp_path, host).probes(ACTIONS[:2])
    assert [(one.id, one.is_right, one.seen, one.fix) for one in probes] == [
        ("a", True, "done", "do a"),
        ("b", False, "why b", "do b"),
    ]


@given(st.binary(max_size=80))
def test_whatever_lies_there_is_a_plan_or_a_told_fault(content: bytes) -> None:
    with pytest.raises(HardwayError, match="UMB733"):
        read_plan(b"!" + content)


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
        "the host is aarch64; machines are defined for x86_64",
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


def _host() -> RecordingHost:
    host = RecordingHost()
    host.networks, host.pools = {"ocp4": "yes"}, {"ocp4": "running"}
    host.domains = {f"ocp4-{node.id}": "shut off" for node in CLUSTER.nodes}
    host.answers = {line: Done(0, answer, b"") for line, answer in RIGHT.items()}
    return host


def _probes(folder: Path, host: RecordingHost) -> dict[str, InfraProbe]:
    return {one.id: one for one in inspect(host, CLUSTER, LIBVIRT, HostPlan(host, folder / "record"))}


def _wrong(folder: Path, host: RecordingHost) -> list[str]:
    return [one.id for one in _probes(folder, host).values() if not one.is_right]


def test_a_host_that_has_everything_is_right(tmp_path: Path) -> None:
    host = _host()
    probes = _probes(tmp_path, host)
    assert [one for one in probes.values() if not one.is_right] == []
    assert {"vip-api", "masquerade", "forward-out", "firewall-6443"} <= set(probes)


def test_each_thing_that_is_missing_is_seen(tmp_path: Path) -> None:
    host = _host()
    host.networks["ocp4"] = "no"
    del host.domains["ocp4-master-0"]
    assert _wrong(tmp_path, host) == ["network", "machine-master-0"]


def test_a_resolver_without_a_wildcard_is_seen(tmp_path: Path) -> None:
    host = _host()
    host.answers[f"{DIG} A any.apps.ocp4.example.com"] = Done(0, b"", b"")
    probe = _probes(tmp_path, host)["name-any.apps.ocp4.example.com"]
    assert not probe.is_right
    assert probe.seen == "the resolver returned nothing; expected 192.168.126.11"


def test_an_address_whose_first_name_is_another_is_seen(tmp_path: Path) -> None:
    host = _host()
    host.answers[f"{DIG} -x 192.168.126.101"] = Done(0, b"etcd-0.ocp4.example.com.\nmaster-0.ocp4.example.com.\n", b"")
    assert _wrong(tmp_path, host) == ["address-master-0"]


def test_a_port_that_nobody_serves_and_a_warning_of_haproxy_are_seen(tmp_path: Path) -> None:
    host = _host()
    host.answers["ss --no-header -ltn"] = Done(0, b"LISTEN 0 4096 0.0.0.0:6443 0.0.0.0:*\n", b"")
    host.answers["haproxy -c -f /etc/haproxy/haproxy.cfg"] = Done(0, b"", b"[WARNING] (1) : hm\n")
    assert _wrong(tmp_path, host) == ["balancer", "listening"]


def test_a_missing_live_image_says_how_to_get_one(tmp_path: Path) -> None:
    class NoImage(RecordingHost):
        def _plain(self, command: list[str]) -> Done:
            return Done(1, b"", b"") if command[0] == "sh" else super()._plain(command)

    host = NoImage()
    host.__dict__.update(_host().__dict__)
    probe = _probes(tmp_path, host)["live-image"]
    assert not probe.is_right
    assert probe.fix.startswith("coreos-installer download -p metal -f iso -C /var/lib/libvirt/images/ocp4")
