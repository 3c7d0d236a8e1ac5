"""Machines of the hard way in a lab, for real: built, looked at, entered, booted, switched off, and gone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.support.hardway_lab import PROGRAMS, UNIT, built, ignition, infrastructure, inside, small_cluster

from umbilical.assets.hardway.cluster import Cluster
from umbilical.host.machine_records import Power
from umbilical.lab.errors import LabError
from umbilical.lab.hardway_machines import LabMachines
from umbilical.lab.hardway_topology import HOST
from umbilical.lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.timeout(240), pytest.mark.real(*PROGRAMS)]
NAME: Final = "master-0.ocp4.example.com"
VIP_IS_OPEN: Final = """
import socket
socket.create_connection((sys.argv[2], 6443), 30).close()
print("reached", open("/proc/self/net/fib_trie").read().count(sys.argv[2]) > 0)
"""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return small_cluster()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Longer than a socket's address may be: a user's directory can lie anywhere.
    return tmp_path_factory.mktemp("cluster") / ("deep" * 20) / ".umbilical" / "lab"


@pytest.fixture(scope="module")
def machines(place: Path, cluster: Cluster) -> Iterator[LabMachines]:
    with built(place, cluster) as made:
        yield made


def test_what_was_built_is_right_and_building_again_changes_nothing(
    machines: LabMachines, cluster: Cluster, place: Path
) -> None:
    before = Lab.open(place).processes()
    machines.build(cluster, infrastructure(cluster))
    assert Lab.open(place).processes() == before
    probes = machines.inspect(cluster)
    assert {probe.id for probe in probes} == {
        *("network", "vips", "balancer", "balancer-config", "names", "reverse-names")
    }
    assert [probe for probe in probes if not probe.is_right] == []


def test_whoever_enters_reaches_the_load_balancer_by_its_address(
    machines: LabMachines, cluster: Cluster, place: Path
) -> None:
    assert inside(place, VIP_IS_OPEN, str(cluster.networks.api_vip)).split() == ["reached", "True"]


def test_what_is_missing_is_told_and_mended(machines: LabMachines, cluster: Cluster, place: Path) -> None:
    lab = Lab.open(place)
    vip = f"{cluster.networks.api_vip}/{cluster.networks.machine.prefixlen}"
    lab.exec(HOST, ["ip", "address", "del", vip, "dev", "machine0"]).check()
    lab.stop(HOST, "coredns")
    lab.stop(HOST, "haproxy")
    wrong = {probe.id for probe in machines.inspect(cluster) if not probe.is_right}
    assert wrong == {"vips", "balancer", "names", "reverse-names"}
    machines.build(cluster, infrastructure(cluster))
    assert [probe for probe in machines.inspect(cluster) if not probe.is_right] == []


def test_a_lab_of_another_cluster_is_left_alone(machines: LabMachines, cluster: Cluster) -> None:
    with pytest.raises(LabError, match="UMB737"):
        machines.build(small_cluster(masters=2), infrastructure(cluster))


def test_the_survey_names_every_program_and_what_the_host_has(machines: LabMachines, cluster: Cluster) -> None:
    survey = machines.survey(cluster)
    assert {"etcd", "kubelet", "coredns", "haproxy", "nft"} <= set(survey.programs)
    assert survey.programs["haproxy"].startswith("/")
    assert min(survey.cores, survey.memory_mib, survey.free_disk_gib) > 0
    assert (machines.kind, survey.notes) == ("lab", ())


def test_a_machine_lives_from_its_first_boot_to_its_removal(machines: LabMachines, place: Path) -> None:
    config = ignition(NAME)
    assert (machines.power("master-0"), machines.is_installed("master-0", config)) == (Power.ABSENT, False)
    with pytest.raises(LabError, match="UMB738"):
        machines.start("master-0")
    machines.install("master-0", config)
    machines.install("master-0", config)
    assert (machines.power("master-0"), machines.is_installed("master-0", config)) == (Power.ON, True)
    assert machines.run("master-0", ["hostname"]).text.strip() == NAME
    assert machines.read("master-0", "/etc/resolv.conf") == b"nameserver 192.0.2.53\n"
    machines.write("master-0", "/var/lib/thing", b"kept", 0o640)

    machines.stop("master-0")
    machines.stop("master-0")
    assert machines.power("master-0") is Power.OFF
    assert machines.is_installed("master-0", config)
    with pytest.raises(LabError, match="UMB738"):
        machines.run("master-0", ["true"])

    machines.start("master-0")
    assert machines.run("master-0", ["stat", "-c", "%a", "/var/lib/thing"]).text.strip() == "640"
    assert machines.read("master-0", "/var/lib/thing") == b"kept"

    machines.remove("master-0")
    assert machines.power("master-0") is Power.ABSENT
    assert machines.read("master-0", "/var/lib/thing") is None
    assert UNIT not in [one.name for one in Lab.open(place).processes() if one.exit_code is None]


def test_a_program_that_fails_on_a_node_is_no_error_here(machines: LabMachines) -> None:
    machines.install("bootstrap", ignition("bootstrap.ocp4.example.com"))
    done = machines.run("bootstrap", ["sh", "-c", "cat; echo oh >&2; exit 7"], stdin=b"in")
    assert (done.exit_code, done.stdout, done.complaint) == (7, b"in", "oh")
    with pytest.raises(LabError, match="UMB816"):
        machines.run("bootstrap", ["sleep", "100"], timeout_seconds=0.2)
    machines.remove("bootstrap")


def test_where_no_lab_is_everything_is_absent_and_destroying_is_fine(tmp_path: Path, cluster: Cluster) -> None:
    machines = LabMachines(tmp_path / "lab", "test")
    (probe,) = machines.inspect(cluster)
    assert not probe.is_right
    assert machines.power("master-0") is Power.ABSENT
    assert not machines.is_installed("master-0", b"{}")
    machines.stop("master-0")
    machines.remove("master-0")
    machines.destroy()
    with pytest.raises(LabError, match="UMB815"):
        machines.enter()


def test_a_changed_first_config_is_taken_over_and_a_later_one_stays(
    machines: LabMachines, cluster: Cluster, place: Path
) -> None:
    files = infrastructure(cluster)
    bootstrap, final = files["infrastructure/haproxy.bootstrap.cfg"], files["infrastructure/haproxy.final.cfg"]
    path = "/srv/balancer/haproxy.cfg"
    changed = bootstrap + b"# changed\n"
    machines.build(cluster, {**files, "infrastructure/haproxy.bootstrap.cfg": changed})
    assert Lab.open(place).read(HOST, path) == changed
    machines.set_balancer(final)
    machines.build(cluster, files)
    assert Lab.open(place).read(HOST, path) == final
    assert {server.server for server in machines.balancer()} == {node.name for node in cluster.masters}
    machines.set_balancer(bootstrap)


def test_an_address_that_moved_makes_another_lab(machines: LabMachines, cluster: Cluster) -> None:
    nodes = tuple(replace(node, address=cluster.networks.machine[77]) for node in cluster.nodes[-1:])
    moved = replace(cluster, nodes=(*cluster.nodes[:-1], *nodes))
    (network,) = [probe for probe in machines.inspect(moved) if probe.id == "network"]
    assert not network.is_right
