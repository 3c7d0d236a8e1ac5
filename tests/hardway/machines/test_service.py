"""virsh and HAProxy as a service: exact command lines, and none where everything is right already."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.support.made_up_stages import Time
from tests.support.recording_host import RecordingHost

from umbilical.fault import HardwayError
from umbilical.hardway.machines.host_services import BEFORE, CONFIG, FIRST, BalancerService
from umbilical.hardway.machines.virsh import SHUTDOWN_SECONDS, Virsh
from umbilical.host.machine_records import BackendServer, Done, Power

CHECK = "haproxy -c -f /etc/haproxy/haproxy.cfg.candidate"
STATS = (
    "# pxname,svname,status,check_status\n"
    "api,FRONTEND,OPEN,\n"
    "api,master-0.ocp4.example.com,UP,L7OK\n"
    "api,master-1.ocp4.example.com,DOWN,L4CON\n"
)
NETWORK = b"<network><name>ocp4</name></network>"
DOMAIN = b"<domain><name>ocp4-master-0</name></domain>"


@pytest.mark.parametrize(
    "answer",
    [
        Done(1, b"", b"[ALERT]    (1) : config : parsing [x:1]: unknown keyword\n"),
        Done(0, b"", b"[WARNING]  (1) : config : 'http-check expect' ignored\nConfiguration file is valid\n"),
    ],
    ids=["error", "warning"],
)
def test_a_config_with_a_fault_or_a_warning_changes_nothing(answer: Done) -> None:
    host = RecordingHost()
    host.files[CONFIG] = b"old"
    host.answers[CHECK] = answer
    with pytest.raises(HardwayError, match="UMB735"):
        BalancerService(host).use(b"new")
    assert host.files[CONFIG] == b"old"
    assert not any(line.startswith("systemctl") for line in host.lines)


def test_stage_02_does_not_take_back_what_the_pivot_has_set() -> None:
    host = RecordingHost()
    service = BalancerService(host)
    service.begin(b"bootstrap", {"infrastructure/haproxy-server-ca.crt": b"ca"})
    assert host.files["/etc/haproxy/haproxy-server-ca.crt"] == b"ca"
    assert host.lines[-1] == "systemctl enable --now haproxy"
    service.use(b"final")
    service.begin(b"bootstrap", {})
    assert host.files[CONFIG] == b"final"


class Killed(BaseException):
    """The end of a run, between two commands."""


class Mortal(RecordingHost):
    left = 1000

    def run(self, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 120.0) -> Done:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return super().run(command, stdin=stdin, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("before", [b"", b"one"], ids=["the first", "a changed one"])
@pytest.mark.parametrize("left", range(10))
def test_a_first_config_is_used_wherever_an_earlier_run_was_killed(left: int, before: bytes) -> None:
    host = Mortal()
    host.files[CONFIG] = b"the host's own"
    service = BalancerService(host)
    if before:
        service.begin(before, {})
    host.left = left
    with suppress(Killed):
        service.begin(b"two", {})
    host.left = 1000
    service.begin(b"two", {})
    assert host.files[CONFIG] == host.files[FIRST] == b"two"


def test_what_the_host_had_is_saved_once_and_put_back() -> None:
    host = RecordingHost()
    host.files[CONFIG] = b"the host's own"
    service = BalancerService(host)
    service.begin(b"one", {})
    save = [line for line in host.lines if "cp -n" in line]
    assert save == [f"sh -c 'if test -e {CONFIG}; then cp -n --preserve=all -- {CONFIG} {BEFORE}; fi'"]
    service.begin(b"two", {})
    assert len([line for line in host.lines if "cp -n" in line]) == 1
    host.files[BEFORE] = b"the host's own"
    service.give_back()
    assert host.files[CONFIG] == b"the host's own"
    assert FIRST not in host.files


def test_a_host_that_had_none_has_none_again_and_twice_is_fine() -> None:
    host = RecordingHost()
    service = BalancerService(host)
    service.begin(b"one", {})
    host.lines.clear()
    service.give_back()
    assert "systemctl disable --now haproxy" in host.lines
    assert CONFIG not in host.files
    host.lines.clear()
    service.give_back()
    assert host.changes() == []


def test_servers_are_asked_by_the_socket() -> None:
    host = RecordingHost()
    host.answers["socat -t 10 STDIO UNIX-CONNECT:/var/lib/haproxy/stats"] = Done(0, STATS.encode(), b"")
    assert BalancerService(host).servers() == [
        BackendServer("api", "master-0.ocp4.example.com", True, "L7OK"),
        BackendServer("api", "master-1.ocp4.example.com", False, "L4CON"),
    ]


def test_a_service_that_is_down_or_warns_is_at_fault() -> None:
    host = RecordingHost()
    service = BalancerService(host)
    assert service.faults() == ""
    host.answers[f"haproxy -c -f {CONFIG}"] = Done(0, b"[WARNING] (1) : hm", b"")
    assert service.faults() == "[WARNING] (1) : hm"
    host.answers["systemctl is-active --quiet haproxy"] = Done(3, b"", b"")
    assert service.faults() == "the service haproxy is not active"


def test_a_pool_is_made_once() -> None:
    host = RecordingHost()
    Virsh(host).make_pool("ocp4", "/var/lib/libvirt/images/ocp4")
    host.lines.clear()
    Virsh(host).make_pool("ocp4", "/var/lib/libvirt/images/ocp4")
    assert host.changes() == ["install -d -m 0711 /var/lib/libvirt/images/ocp4", "virsh pool-autostart ocp4"]


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
    host, clock = RecordingHost(), Time()
    started = clock.now
    host.domains["ocp4-master-0"] = "running"
    host.answers["virsh shutdown ocp4-master-0"] = Done(0, b"", b"")
    Virsh(host, clock, clock.sleep).stop("ocp4-master-0")
    assert host.changes() == ["virsh shutdown ocp4-master-0", "virsh destroy ocp4-master-0"]
    assert clock.now >= started + SHUTDOWN_SECONDS


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
