"""virsh: exact command lines, and none where everything is right already."""

from tests.support.recording_host import RecordingHost

from umbilical.hardway.libvirt.virsh import SHUTDOWN_SECONDS, Virsh
from umbilical.host.machine_records import Done, Power

NETWORK = b"<network><name>ocp4</name></network>"
DOMAIN = b"<domain><name>ocp4-master-0</name></domain>"


class _Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_pool_is_made_once() -> None:
    host = RecordingHost()
    for _ in range(2):
        Virsh(host).make_pool("ocp4", "/var/lib/libvirt/images/ocp4")
    assert host.changes() == [
        "install -d -m 0711 /var/lib/libvirt/images/ocp4",
        "virsh pool-define-as ocp4 dir --target /var/lib/libvirt/images/ocp4",
        "virsh pool-start ocp4",
        "virsh pool-autostart ocp4",
        "install -d -m 0711 /var/lib/libvirt/images/ocp4",
        "virsh pool-autostart ocp4",
    ]


def test_a_network_is_started_once_and_again_when_its_definition_changed() -> None:
    host = RecordingHost()
    virsh = Virsh(host)
    virsh.make_network("ocp4", NETWORK)
    assert host.changes() == ["virsh net-define /dev/stdin", "virsh net-start ocp4", "virsh net-autostart ocp4"]
    host.lines.clear()
    virsh.make_network("ocp4", NETWORK)
    assert host.changes() == ["virsh net-define /dev/stdin", "virsh net-autostart ocp4"]
    host.lines.clear()
    virsh.make_network("ocp4", NETWORK.replace(b"</network>", b"<dns/></network>"))
    assert host.changes()[1:3] == ["virsh net-destroy ocp4", "virsh net-start ocp4"]


def test_power_is_what_libvirt_says() -> None:
    host = RecordingHost()
    virsh = Virsh(host)
    assert virsh.power("ocp4-master-0") is Power.ABSENT
    virsh.define(DOMAIN)
    assert virsh.power("ocp4-master-0") is Power.OFF
    virsh.start("ocp4-master-0")
    assert virsh.power("ocp4-master-0") is Power.ON
    host.lines.clear()
    virsh.start("ocp4-master-0")
    assert host.changes() == []


def test_a_machine_is_asked_to_stop_and_its_power_taken_after_a_while() -> None:
    host, clock = RecordingHost(), _Time()
    host.domains["ocp4-master-0"] = "running"
    host.answers["virsh shutdown ocp4-master-0"] = Done(0, b"", b"")
    Virsh(host, clock, clock.sleep).stop("ocp4-master-0")
    assert host.changes() == ["virsh shutdown ocp4-master-0", "virsh destroy ocp4-master-0"]
    assert clock.now >= SHUTDOWN_SECONDS


def test_a_machine_that_stops_by_itself_keeps_its_file_systems_whole() -> None:
    host = RecordingHost()
    host.domains["ocp4-master-0"] = "running"
    Virsh(host).stop("ocp4-master-0")
    assert host.changes() == ["virsh shutdown ocp4-master-0"]


def test_what_is_removed_twice_is_removed_once() -> None:
    host = RecordingHost()
    virsh = Virsh(host)
    virsh.make_pool("ocp4", "/pool")
    virsh.make_network("ocp4", NETWORK)
    virsh.define(DOMAIN)
    virsh.start("ocp4-master-0")
    host.lines.clear()
    for _ in range(2):
        virsh.remove("ocp4-master-0")
        virsh.remove_network("ocp4")
        virsh.remove_pool("ocp4")
    assert host.changes() == [
        "virsh destroy ocp4-master-0",
        "virsh undefine ocp4-master-0 --nvram",
        "virsh net-destroy ocp4",
        "virsh net-undefine ocp4",
        "virsh pool-destroy ocp4",
        "virsh pool-undefine ocp4",
    ]
