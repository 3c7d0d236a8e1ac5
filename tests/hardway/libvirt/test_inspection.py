"""What the host has now, probe by probe."""

from pathlib import Path

from tests.support import hardway
from tests.support.recording_host import RecordingHost

from umbilical.hardway.libvirt.host_plan import HostPlan
from umbilical.hardway.libvirt.inspection import inspect
from umbilical.host.machine_records import Done, Probe

CLUSTER = hardway.cluster(masters=1, workers=1)
LIBVIRT = CLUSTER.libvirt
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


assert LIBVIRT is not None


def _host() -> RecordingHost:
    host = RecordingHost()
    host.networks, host.pools = {"ocp4": "yes"}, {"ocp4": "running"}
    host.domains = {f"ocp4-{node.id}": "shut off" for node in CLUSTER.nodes}
    host.answers = {line: Done(0, answer, b"") for line, answer in RIGHT.items()}
    return host


def _probes(folder: Path, host: RecordingHost) -> dict[str, Probe]:
    assert LIBVIRT is not None
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
    assert probe.seen == "the resolver says nothing, wanted is 192.168.126.11"


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
    host = RecordingHost()

    class NoImage(RecordingHost):
        def _plain(self, command: list[str]) -> Done:
            return Done(1, b"", b"") if command[0] == "sh" else super()._plain(command)

    host = NoImage()
    host.__dict__.update(_host().__dict__)
    probe = _probes(tmp_path, host)["live-image"]
    assert not probe.is_right
    assert probe.fix.startswith("coreos-installer download -p metal -f iso -C /var/lib/libvirt/images/ocp4")
