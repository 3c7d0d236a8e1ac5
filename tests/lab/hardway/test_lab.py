"""Machines of the hard way in a lab: built, inspected, entered, booted, switched off, and gone."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.support.hardway_lab import (
    PROGRAMS,
    UNIT,
    built,
    ignition,
    infrastructure,
    inside,
    small_cluster,
    start_inside,
)
from tests.support.labs import wait_until

from umbilical.fault import LabError
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.node_logs import UNITS as UNIT_LOGS
from umbilical.hardway.node_logs import find_logs
from umbilical.host import namespaces
from umbilical.host.machine_records import Power
from umbilical.lab import cgroups
from umbilical.lab.hardway.balancer import CONFIG, MASTER_SOCKET, LabBalancer, parse_worker
from umbilical.lab.hardway.machines import LabMachines, inspect
from umbilical.lab.hardway.names import HOST, LabResolver, NameCheck, forward_checks, reverse_checks
from umbilical.lab.hardway.node import (
    BOOTED,
    DROP_IN,
    FIRST_BOOT,
    RESULT,
    LabNode,
    end_everything,
    forget_runtime_state,
    mount_points,
    network_namespace,
)
from umbilical.lab.images import UMBILICAL
from umbilical.lab.kubelet import archives, containerd, node_runtime
from umbilical.lab.kubelet.image_format import ImageConfig, write_archive
from umbilical.lab.kubelet.node_runtime import COMPLETE
from umbilical.lab.lab import Lab

# One lab for all tests, and the machine compared before and after it.
pytestmark = [
    pytest.mark.usefixtures("own_machine"),
    pytest.mark.root,
    pytest.mark.timeout(240),
    pytest.mark.real(*PROGRAMS),
]
NAME = "master-0.ocp4.example.com"
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


@pytest.fixture
def lab(machines: LabMachines, cluster: Cluster, place: Path) -> Iterator[Lab]:
    """The lab of the machines; afterwards balancer and resolver are as they were built."""
    yield Lab.open(place)
    files = infrastructure(cluster)
    machines.build(cluster, files)
    machines.set_balancer(files["infrastructure/haproxy.bootstrap.cfg"])


@pytest.fixture
def balanced(lab: Lab) -> Lab:
    """Two servers behind the balancer, which answer with one letter."""
    running = {one.name for one in lab.processes() if one.exit_code is None}
    for port, letter in ((7001, "a"), (7002, "b")):
        if f"backend-{letter}" not in running:
            lab.start(HOST, f"backend-{letter}", ["python3", "-c", BACKEND, str(port), letter])
    return lab


def test_building_again_changes_nothing_and_whoever_enters_reaches_the_balancer(
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
    assert inside(place, VIP_IS_OPEN, str(cluster.networks.api_vip)).split() == ["reached", "True"]


def test_what_is_missing_is_told_and_mended(machines: LabMachines, cluster: Cluster, place: Path) -> None:
    lab = Lab.open(place)
    vip = f"{cluster.networks.api_vip}/{cluster.networks.machine.prefixlen}"
    lab.exec(HOST, ["ip", "address", "del", vip, "dev", "machine0"]).check()
    lab.stop(HOST, "coredns")
    lab.stop(HOST, "haproxy")
    wrong = {probe.id: probe for probe in machines.inspect(cluster) if not probe.is_right}
    assert set(wrong) == {"vips", "balancer", "names", "reverse-names"}
    assert wrong["vips"].seen == "host has 192.168.126.2/24, 192.168.126.11/24"
    assert "api.ocp4.example.com is unknown" in wrong["names"].seen
    machines.build(cluster, infrastructure(cluster))
    assert [probe for probe in machines.inspect(cluster) if not probe.is_right] == []


def test_a_lab_of_another_cluster_is_told_and_left_alone(machines: LabMachines, cluster: Cluster) -> None:
    with pytest.raises(LabError, match="UMB737"):
        machines.build(small_cluster(masters=2), infrastructure(cluster))
    nodes = tuple(replace(node, address=cluster.networks.machine[77]) for node in cluster.nodes[-1:])
    moved = replace(cluster, nodes=(*cluster.nodes[:-1], *nodes))
    (network,) = [probe for probe in machines.inspect(moved) if probe.id == "network"]
    assert not network.is_right


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


def test_an_archive_must_have_the_image_that_manifests_name_and_be_there_from_the_beginning(
    tmp_path: Path, machines: LabMachines, cluster: Cluster, place: Path
) -> None:
    archive = tmp_path / "other.tar"
    write_archive(archive, ["localhost/other:1"], [], ImageConfig("amd64"))
    with pytest.raises(LabError, match=r"UMB849(.|\n)*contains localhost/other:1"):
        LabMachines(tmp_path / "lab", "test", image=archive).build(cluster, infrastructure(cluster))
    assert not (tmp_path / "lab").exists()
    with pytest.raises(LabError, match=r"UMB737(.|\n)*without the image"):
        LabMachines(place, "test", image=archive).build(cluster, infrastructure(cluster))


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


def test_a_config_with_warnings_and_a_port_that_nobody_has_are_two_faults(lab: Lab, cluster: Cluster) -> None:
    config = lab.read(HOST, CONFIG)
    wrong = config.replace(b":6443\n", b":6444\n", 1) + b"backend bad\n mode tcp\n http-check send\n"
    lab.write(HOST, CONFIG, wrong)
    found = {probe.id: probe for probe in inspect(lab, cluster) if not probe.is_right}
    lab.write(HOST, CONFIG, config)
    assert set(found) == {"balancer", "balancer-config"}
    assert "6444" in found["balancer"].seen
    assert "http-check" in found["balancer-config"].seen


NODE = "master-0"


def pids_of(seconds: str) -> list[int]:
    """Find who sleeps for so long: every test has its own number."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may end while we look
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(int(path.parent.name))
    return found


def test_everything_of_a_node_ends_in_whatever_session_or_group_and_others_run_on(lab: Lab) -> None:
    away = "from subprocess import *; Popen(['sleep', '86501'], start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)"
    lab.exec(NODE, ["python3", "-c", away]).check()
    # As in a container: with mounts of its own, and deaf to SIGTERM.
    deaf = "trap '' TERM; exec sleep 86502"
    lab.start("bootstrap", "container", ["unshare", "--mount", "sh", "-c", deaf])
    lab.start("bootstrap", "other", ["sleep", "86503"])
    wait_until(lambda: [len(pids_of(f"8650{number}")) for number in (1, 2, 3)] == [1, 1, 1])
    group = node_runtime.make_group(lab, NODE)
    for tree in cgroups.find(group):
        (tree / "cgroup.procs").write_text(str(pids_of("86502")[0]))
    end_everything(lab, NODE)
    assert [len(pids_of(f"8650{number}")) for number in (1, 2, 3)] == [0, 0, 1]
    assert lab.exec(NODE, ["true"]).exit_code == 0
    lab.stop("bootstrap", "other")


def test_what_a_boot_would_not_find_is_gone(lab: Lab) -> None:
    make = (
        "mkdir -p '/run/with blank/inner' && mount -t tmpfs none '/run/with blank' && mkdir '/run/with blank/inner'"
        " && mount -t tmpfs none '/run/with blank/inner' && nft add table ip kube-proxy && touch /run/file"
    )
    lab.exec(NODE, ["sh", "-c", make]).check()
    assert "/run/with blank/inner" in mount_points(lab, NODE)
    group = node_runtime.make_group(lab, NODE)
    cgroups.make(f"{group}/kubepods/pod1")
    forget_runtime_state(lab, NODE)
    assert [point for point in mount_points(lab, NODE) if point.startswith("/run")] == []
    assert "kube-proxy" not in lab.exec(NODE, ["nft", "list", "tables"]).text
    # The node's own way out for its pods is made once, with the node.
    assert "umbilical_pods" in lab.exec(NODE, ["nft", "list", "tables"]).text
    assert lab.exec(NODE, ["ls", "/run"]).text == ""
    assert cgroups.find(group) == []


def test_a_nodes_network_is_found_from_outside(lab: Lab) -> None:
    seen = namespaces.in_network(network_namespace(lab, NODE), lambda: os.stat(namespaces.THREAD_NETWORK).st_ino)
    assert f"net:[{seen}]" == lab.exec(NODE, ["readlink", "/proc/self/ns/net"]).text.strip()


def test_units_that_ignition_enables_run_and_another_config_is_refused(lab: Lab) -> None:
    node = LabNode(lab, "master-0")
    node.install(ignition(NAME))
    # containerd is the machine's own: the config enables it and does not bring it.
    assert node.enabled_units() == [UNIT]
    wait_until(lambda: b"tick" in lab.read("master-0", f"{UNIT_LOGS}/{UNIT}.log"))
    assert b"cgroupRoot: /umbilical-test-" in lab.read("master-0", DROP_IN)
    processes = [one for one in lab.processes() if one.node == "master-0" and one.name in (UNIT, "containerd")]
    assert [one.exit_code for one in processes] == [None, None]
    node.install(ignition(NAME))
    with pytest.raises(LabError, match="UMB737"):
        node.install(ignition("other.ocp4.example.com"))
    assert node.has(ignition(NAME))
    assert node.power is Power.ON


def test_services_that_failed_are_named_and_started_and_their_logs_are_on_the_node(
    machines: LabMachines, lab: Lab
) -> None:
    LabNode(lab, "master-0").install(ignition(NAME))
    assert machines.failed_services("master-0") == []
    lab.stop("master-0", containerd.PROCESS, kill=True)
    lab.stop("master-0", UNIT, kill=True)
    assert machines.failed_services("master-0") == [containerd.PROCESS, UNIT]
    machines.start("master-0")
    assert machines.failed_services("master-0") == []
    assert set(find_logs(machines, "master-0")) == {"clock", "containerd"}
    done = subprocess.run(machines.shell("master-0", ["hostname"]), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == NAME


def test_a_killed_load_balancer_comes_back(machines: LabMachines, lab: Lab) -> None:
    before = lab.process(HOST, "haproxy").pid
    lab.exec(HOST, ["sh", "-c", f"kill -KILL {before}"]).check()

    def is_back() -> bool:
        with suppress(LabError):
            return lab.process(HOST, "haproxy").pid != before and bool(machines.balancer())
        return False

    wait_until(is_back)
    assert "started again" in lab.log(HOST, "haproxy")
    assert set(find_logs(machines, HOST)) == {"coredns", "haproxy"}


def test_an_image_is_loaded_under_its_name_and_another_file_is_not(machines: LabMachines, tmp_path: Path) -> None:
    machines.install("master-0", ignition(NAME))
    archive = tmp_path / "try.tar"
    entries = archives.program_entries({"pause": containerd.pause_program()})
    write_archive(archive, ["localhost/try:1"], entries, ImageConfig("amd64"))
    assert machines.load_image("master-0", archive) == ["localhost/try:1"]
    archive.write_bytes(b"no image")
    with pytest.raises(LabError, match="UMB772"):
        machines.load_image("master-0", archive)


def test_a_machine_that_was_half_set_up_is_set_up_anew(lab: Lab) -> None:
    node = LabNode(lab, "bootstrap")
    node.install(ignition("bootstrap.ocp4.example.com"))
    # As a run leaves it that is killed while it lays files.
    lab.remove("bootstrap", RESULT)
    assert LabNode(lab, "bootstrap").power is Power.ABSENT
    lab.write("bootstrap", "/etc/left-over", b"")
    node.install(ignition("bootstrap.ocp4.example.com"))
    assert node.power is Power.ON
    assert not lab.exists("bootstrap", "/etc/left-over")


def test_a_first_boot_that_was_killed_is_no_installation_and_is_done_again(lab: Lab) -> None:
    node = LabNode(lab, "bootstrap")
    node.install(ignition("bootstrap.ocp4.example.com"))
    for path in (BOOTED, FIRST_BOOT, f"{containerd.STATE_DIRECTORY}/{COMPLETE}"):
        lab.remove("bootstrap", path)
    # Something runs, so it is not off; and yet it is not what was asked for.
    assert node.power is Power.ON
    assert not node.has(ignition("bootstrap.ocp4.example.com"))
    lab.write("bootstrap", "/var/lib/kept", b"")
    before = {one.pid for one in lab.processes()}
    node.install(ignition("bootstrap.ocp4.example.com"))
    assert node.has(ignition("bootstrap.ocp4.example.com"))
    assert lab.exists("bootstrap", "/var/lib/kept")
    assert {one.pid for one in lab.processes() if one.node == "bootstrap" and one.exit_code is None}.isdisjoint(before)
    images = containerd.ctr(lab, "bootstrap", "images", "ls", "-q").check().text
    assert UMBILICAL in images.split()


def test_a_machine_without_power_or_with_a_wrong_config_runs_nothing(lab: Lab) -> None:
    node = LabNode(lab, "master-0")
    node.install(ignition(NAME))
    node.shut_down()
    assert str(node.power) == str(Power.OFF)
    assert [one for one in lab.processes() if one.node == "master-0" and one.exit_code is None] == []
    assert not lab.describe_network()["nodes"]["master-0"]["is_linked"]
    node.boot()
    assert lab.describe_network()["nodes"]["master-0"]["is_linked"]
    node.clear()
    with pytest.raises(LabError, match="UMB816"):
        node.install(b'{"ignition": {"version": "9.9.9"}}')
    assert LabNode(lab, "master-0").power is Power.ABSENT


def zones() -> dict[str, bytes]:
    folder = "infrastructure/dns/"
    files = infrastructure(small_cluster())
    return {path.removeprefix(folder): content for path, content in files.items() if path.startswith(folder)}


def test_wrong_and_missing_answers_are_told_with_what_is_right(lab: Lab) -> None:
    resolver = LabResolver(lab)
    assert resolver.wrong(forward_checks(small_cluster())) == []
    assert resolver.wrong(reverse_checks(small_cluster()), is_reverse=True) == []
    asked = [NameCheck("api.ocp4.example.com", "192.0.2.1"), NameCheck("gone.example.com", "192.0.2.2")]
    assert resolver.wrong(asked) == [
        "api.ocp4.example.com is 192.168.126.10, not 192.0.2.1",
        "gone.example.com is unknown, not 192.0.2.2",
    ]
    assert resolver.wrong([NameCheck("192.168.126.77", "nobody")], is_reverse=True) == [
        "192.168.126.77 is unknown, not nobody"
    ]


def test_new_zones_are_served_and_a_resolver_that_ends_is_told_with_its_last_words(lab: Lab) -> None:
    resolver = LabResolver(lab)
    before = [one.pid for one in lab.processes() if one.name == "coredns"]
    resolver.serve(zones())
    assert [one.pid for one in lab.processes() if one.name == "coredns"] == before
    files = {name: content.replace(b"192.168.126.10\n", b"192.168.126.9\n") for name, content in zones().items()}
    resolver.serve(files)
    assert resolver.wrong([NameCheck("api.ocp4.example.com", "192.168.126.9")]) == []
    with pytest.raises(LabError, match="UMB736 CoreDNS exited") as caught:
        LabResolver(lab).serve({"Corefile": b".:53 { nonsense }\n"})
    assert "nonsense" in caught.value.why
    assert HOST in caught.value.remedy


RELOADS: Final = 12
# Answers with one letter and hangs up; as many at once as come.
BACKEND: Final = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024)
while True:
    connection, _ = listener.accept()
    connection.sendall(sys.argv[2].encode())
    connection.close()
"""
# New connections one after the other until a line comes; what went wrong is told at the end.
PROBE: Final = """
import json, select, socket
seen, wrong = {}, []
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        with socket.create_connection((sys.argv[2], 6443), 30) as connection:
            answer = connection.recv(1).decode()
        seen[answer] = seen.get(answer, 0) + 1
    except OSError as error:
        wrong.append(str(error))
print(json.dumps({"seen": seen, "wrong": wrong}))
"""


def config(port: int, more: str = "") -> bytes:
    return (
        "global\n stats socket unix@stats.sock level admin expose-fd listeners\n"
        "defaults\n mode tcp\n timeout client 1m\n timeout server 1m\n timeout connect 10s\n"
        f"listen api\n bind {small_cluster().networks.api_vip}:6443\n{more}"
        f" server only 127.0.0.1:{port} check inter 100ms\n"
    ).encode()


def test_reloading_loses_no_connection(balanced: Lab) -> None:
    balancer = LabBalancer(balanced)
    balancer.use(config(7001))
    wait_until(lambda: [server.is_up for server in balancer.servers()] == [True])
    prober = start_inside(balanced.directory.path, PROBE, str(small_cluster().networks.api_vip))
    assert prober.stdout is not None
    assert prober.stdout.readline() == "begun\n"
    for turn in range(RELOADS):
        balancer.use(config((7002, 7001)[turn % 2]))
        wait_until(lambda: [server.is_up for server in balancer.servers()] == [True])
    said, _ = prober.communicate("enough\n", timeout=60)
    result = json.loads(said)
    assert result["wrong"] == []
    assert set(result["seen"]) == {"a", "b"}
    assert min(result["seen"].values()) > RELOADS


@pytest.mark.parametrize(
    ("more", "words"),
    [(" nonsense\n", "unknown keyword 'nonsense'"), (" mode tcp\n http-check expect status 200\n", "WARNING")],
)
def test_a_config_that_haproxy_finds_fault_with_changes_nothing(balanced: Lab, more: str, words: str) -> None:
    balancer = LabBalancer(balanced)
    balancer.use(config(7001))
    with pytest.raises(LabError, match="UMB735") as caught:
        balancer.use(config(7002, more))
    assert words in caught.value.why
    assert balancer.config() == config(7001)
    assert balancer.is_running


def test_a_new_authority_is_read_though_the_config_is_the_same(balanced: Lab) -> None:
    balancer = LabBalancer(balanced)
    balancer.use(config(7001))

    def worker() -> str | None:
        return parse_worker(balancer._query(MASTER_SOCKET, "show proc"))

    before = worker()
    balancer.use(config(7001))
    assert worker() == before
    balancer.write_files({"other-ca.crt": b"new"})
    balancer.use(config(7001))
    assert worker() != before


def test_a_balancer_that_ends_is_told_of_and_started_again(balanced: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    balancer = LabBalancer(balanced)
    balancer.use(config(7001))
    balanced.stop(HOST, "haproxy")
    with pytest.raises(LabError, match="UMB736"):
        balancer.servers()
    balancer.use(config(7001))
    assert len(balancer.servers()) == 1
    balanced.stop(HOST, "haproxy")
    monkeypatch.setattr("umbilical.lab.hardway.balancer.balancer_command", lambda folder: ("haproxy", "-f", "/gone"))
    with pytest.raises(LabError, match="UMB736 HAProxy exited"):
        LabBalancer(balanced).use(config(7002))
    monkeypatch.undo()
    LabBalancer(balanced).use(config(7001))
