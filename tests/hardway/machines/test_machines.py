"""libvirt machines, and nodes over SSH, as exact command lines; programs by their ports."""

import base64
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.made_up_stages import Time
from tests.support.recording_host import RecordingHost, RecordingRunner
from tests.support.recording_machines import LocalMachines

from umbilical.fault import HardwayError, StageTimeout
from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.artifacts.infrastructure.libvirt import domain_xml, network_xml
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.machines import interface
from umbilical.hardway.machines.host_services import BEFORE, CONFIG
from umbilical.hardway.machines.interface import Machines, is_listening, kill
from umbilical.hardway.machines.libvirt import INSTALL_SECONDS, LibvirtMachines, NodeShells, connect_by_ssh
from umbilical.host.commands import CommandResult, LocalRunner, SshRunner
from umbilical.host.machine_records import Done, Power

CLUSTER = hardway.cluster(masters=1, workers=0)
LIBVIRT = CLUSTER.libvirt
POOL = "/var/lib/libvirt/images/ocp4"
PLAN = b'{"actions": [{"id": "vip-api", "why": "w", "check": "check vip", "do": "do vip", "undo": "undo vip"}]}'
UP = CommandResult(0, base64.b64encode(b"{}").decode(), "")
NOT_YET = CommandResult(44, "", "")
NODE = hardway.cluster().bootstrap
LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"


assert LIBVIRT is not None


def _infrastructure() -> dict[str, bytes]:
    assert LIBVIRT is not None
    return {
        places.NETWORK: network_xml(CLUSTER, LIBVIRT),
        places.HOST_PLAN: PLAN,
        places.HAPROXY_BOOTSTRAP: b"balance",
        places.SERVER_CA: b"ca",
        **{places.domain_file(node): domain_xml(CLUSTER, LIBVIRT, node) for node in CLUSTER.nodes},
    }


class _Scene:
    def __init__(self, folder: Path) -> None:
        self.host = RecordingHost()
        self.runner = RecordingRunner()
        self.runner.answers = [UP]
        self.time = Time()
        self.machines = LibvirtMachines(
            CLUSTER, folder, self.host, lambda node: self.runner, self.time, self.time.sleep
        )


@pytest.fixture
def scene(tmp_path: Path) -> _Scene:
    return _Scene(tmp_path)


def test_it_is_what_the_pipeline_asks_for(scene: _Scene) -> None:
    machines: Machines = scene.machines
    assert machines.kind == "libvirt"
    machines.enter()
    assert scene.host.lines == []


def test_building_is_these_lines_and_machines_stay_off(scene: _Scene) -> None:
    scene.machines.build(CLUSTER, _infrastructure())
    assert scene.host.changes() == [
        f"install -d -m 0711 {POOL}",
        f"virsh pool-define-as ocp4 dir --target {POOL}",
        "virsh pool-start ocp4",
        "virsh pool-autostart ocp4",
        "virsh net-define /dev/stdin",
        "virsh net-start ocp4",
        "virsh net-autostart ocp4",
        "bash -c 'check vip'",
        "bash -c 'do vip'",
        "write 0644 /etc/haproxy/haproxy-server-ca.crt",
        f"sh -c 'if test -e {CONFIG}; then cp -n --preserve=all -- {CONFIG} {BEFORE}; fi'",
        "write 0644 /etc/haproxy/haproxy.cfg.first",
        "write 0644 /etc/haproxy/haproxy.cfg.candidate",
        "haproxy -c -f /etc/haproxy/haproxy.cfg.candidate",
        "mv -f -- /etc/haproxy/haproxy.cfg.candidate /etc/haproxy/haproxy.cfg",
        "systemctl reload-or-restart haproxy",
        "write 0644 /etc/haproxy/haproxy.cfg.first",
        "systemctl enable --now haproxy",
        "virsh define /dev/stdin",
        "virsh define /dev/stdin",
    ]
    assert scene.host.domains == {"ocp4-bootstrap": "shut off", "ocp4-master-0": "shut off"}


def test_installing_is_these_lines(scene: _Scene) -> None:
    scene.machines.install("bootstrap", b"{}")
    alone = "sh -c 'umask 077; exec \"$@\"' sh"
    customize = f"{alone} coreos-installer iso customize --force"
    iso, ign = f"{POOL}/ocp4-bootstrap.iso", f"{POOL}/ocp4-bootstrap.ign"
    assert scene.host.changes() == [
        f"rm -f -- {ign}.installed {POOL}/ocp4-bootstrap.qcow2 {iso} {ign}",
        f"write 0600 {ign}",
        f"{customize} --dest-device /dev/vda --dest-ignition {ign} --output {iso} {POOL}/rhcos-live.iso",
        f"{alone} qemu-img create -q -f qcow2 {POOL}/ocp4-bootstrap.qcow2 100G",
        f"chmod 0600 {POOL}/ocp4-bootstrap.qcow2",
        "virsh define /dev/stdin",
        "virsh start ocp4-bootstrap",
        f"write 0644 {ign}.installed",
    ]
    assert scene.machines.is_installed("bootstrap", b"{}")
    assert not scene.machines.is_installed("bootstrap", b"another")
    assert scene.machines.power("bootstrap") is Power.ON


def test_an_installer_that_powers_off_is_started_again(scene: _Scene) -> None:
    scene.runner.answers = [NOT_YET, UP]

    class PoweringOff(RecordingHost):
        def _virsh(self, command: list[str], stdin: bytes) -> Done:
            done = super()._virsh(command, stdin)
            if command[0] == "start" and self.lines.count("virsh start ocp4-bootstrap") == 1:
                self.domains["ocp4-bootstrap"] = "shut off"
            return done

    host = PoweringOff()
    machines = LibvirtMachines(CLUSTER, Path("/nowhere"), host, lambda node: scene.runner, scene.time, scene.time.sleep)
    machines.install("bootstrap", b"{}")
    assert host.lines.count("virsh start ocp4-bootstrap") == 2


def test_a_machine_that_never_answers_times_out_and_is_installed_anew(scene: _Scene) -> None:
    scene.runner.answers = [NOT_YET]
    with pytest.raises(StageTimeout) as told:
        scene.machines.install("bootstrap", b"{}")
    assert told.value.code == "UMB731"
    assert told.value.remedy == "check its console: virsh console ocp4-bootstrap"
    assert scene.time.now >= INSTALL_SECONDS
    assert not scene.machines.is_installed("bootstrap", b"{}")


def test_a_machine_with_another_config_is_never_wiped_on_the_way(scene: _Scene) -> None:
    scene.machines.install("master-0", b"{}")
    before = scene.host.changes()
    with pytest.raises(HardwayError, match="UMB737"):
        scene.machines.install("master-0", b"another")
    assert scene.host.changes() == before
    assert scene.machines.is_installed("master-0", b"{}")


def test_a_machine_that_was_removed_takes_another_config(scene: _Scene) -> None:
    scene.machines.install("master-0", b"{}")
    scene.machines.remove("master-0")
    scene.machines.install("master-0", b"another")
    assert scene.machines.is_installed("master-0", b"another")


def test_a_machine_is_started_and_stopped(scene: _Scene) -> None:
    scene.host.domains["ocp4-master-0"] = "shut off"
    scene.machines.start("master-0")
    scene.machines.stop("master-0")
    assert scene.host.changes() == ["virsh start ocp4-master-0", "virsh shutdown ocp4-master-0"]


def test_nodes_are_entered_by_ssh(scene: _Scene) -> None:
    assert scene.machines.read("master-0", "/etc/hostname") == b"{}"
    scene.machines.write("master-0", "/etc/x", b"y", 0o644)
    assert scene.machines.run("master-0", ["crictl", "pods"]).exit_code == 0
    assert scene.runner.lines[-1] == "crictl pods"


def test_the_balancer_is_set_and_asked(scene: _Scene) -> None:
    scene.machines.set_balancer(b"final")
    assert scene.host.files["/etc/haproxy/haproxy.cfg"] == b"final"
    stats = Done(0, b"# pxname,svname,status,check_status\napi,master-0,UP,L7OK\n", b"")
    scene.host.answers["socat -t 10 STDIO UNIX-CONNECT:/var/lib/haproxy/stats"] = stats
    assert [one.server for one in scene.machines.balancer()] == ["master-0"]


def test_after_destroying_nothing_is_left_and_twice_is_fine(scene: _Scene) -> None:
    scene.machines.build(CLUSTER, _infrastructure())
    scene.machines.install("bootstrap", b"{}")
    scene.machines.destroy()
    assert (scene.host.domains, scene.host.networks, scene.host.pools, scene.host.held) == ({}, {}, {}, set())
    assert scene.host.files == {}
    scene.host.lines.clear()
    scene.machines.destroy()
    assert [line for line in scene.host.changes() if not line.startswith("rm -f")] == []


def test_a_config_without_libvirt_is_refused(tmp_path: Path) -> None:
    cluster = hardway.cluster(ClusterProfile.KUBERNETES, libvirt=None)
    with pytest.raises(HardwayError, match="UMB733"):
        LibvirtMachines(cluster, tmp_path)


def test_the_host_is_surveyed_and_inspected_through_the_same_door(scene: _Scene) -> None:
    scene.host.answers["nproc"] = Done(0, b"8\n", b"")
    scene.host.files["/proc/meminfo"] = b"MemTotal:       65810000 kB\n"
    assert scene.machines.survey(CLUSTER).cores == 8
    assert any(one.id == "network" and not one.is_right for one in scene.machines.inspect(CLUSTER))


def _local(folder: Path) -> NodeShells:
    """This machine in a node's place: the same commands, run for real."""
    return NodeShells(lambda node: LocalRunner(), folder)


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
    runner.answers = [CommandResult(1, "", "mktemp: Read-only file system\n")]
    with pytest.raises(HardwayError) as told:
        NodeShells(lambda node: runner, tmp_path).write(NODE, "/usr/bin/x", b"", 0o600)
    assert told.value.code == "UMB734"
    assert told.value.remedy == "ssh core@192.168.126.100 sudo ls -ld /usr/bin/x"


def test_an_answer_that_is_no_base64_is_told(tmp_path: Path) -> None:
    runner = RecordingRunner()
    runner.answers = [CommandResult(0, "motd!", "")]
    with pytest.raises(HardwayError, match="UMB734"):
        NodeShells(lambda node: runner, tmp_path).read(NODE, "/etc/hostname")


def test_a_shell_is_a_login_by_ssh_and_images_are_only_pulled(scene: _Scene) -> None:
    assert scene.machines.shell("master-0", ["id"])[-2:] == ["core@192.168.126.101", "sudo -n -- id"]
    with pytest.raises(HardwayError, match="UMB772"):
        scene.machines.load_image("master-0", Path("image.tar"))


def test_ssh_has_a_list_of_host_keys_for_each_node_and_forgets_one(tmp_path: Path) -> None:
    runner = connect_by_ssh(tmp_path, "~/.ssh/id_ed25519")(NODE)
    assert isinstance(runner, SshRunner)
    assert runner.host == "192.168.126.100"
    assert runner.uses_sudo
    assert runner.key == Path("~/.ssh/id_ed25519").expanduser()
    known = tmp_path / "known-hosts" / "bootstrap"
    line = runner.terminal_command(["ip", "route"])
    assert (line[:2], line[-2:]) == (["ssh", "-t"], ["core@192.168.126.100", "sudo -n -- ip route"])
    assert f'UserKnownHostsFile="{known}"' in line
    assert runner.terminal_command([])[-1] == "sudo -n -- bash -l"
    known.write_text("key")
    nodes = NodeShells(lambda node: runner, tmp_path / "known-hosts")
    for _ in range(2):
        nodes.forget(NODE)
    assert not known.exists()


@pytest.fixture
def listening() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen([sys.executable, "-c", LISTEN + "time.sleep(120)"], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        yield one, int(one.stdout.readline())
        one.kill()


def test_a_program_listens_or_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setitem(interface.PORTS, "etcd", server.getsockname()[1])
        assert is_listening(LocalMachines(), "master-0", "etcd")
    assert not is_listening(LocalMachines(), "master-0", "etcd")


@pytest.mark.real("ss")
def test_who_listens_is_ended_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, listening: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = listening
    monkeypatch.setitem(interface.PORTS, "kube-apiserver", port)
    assert kill(LocalMachines(), "master-0", "kube-apiserver")
    assert process.wait(60) == -9
    assert not kill(LocalMachines(), "master-0", "kube-apiserver")
