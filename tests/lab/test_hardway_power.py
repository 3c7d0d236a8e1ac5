"""A node without power: nothing runs on it, in whatever session or control group, and nothing of /run is left."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hardway_lab import PROGRAMS, built, small_cluster
from tests.support.labs import wait_until

from umbilical.host import namespaces
from umbilical.lab import cgroups
from umbilical.lab.hardway_power import end_everything, forget_runtime_state, mount_points, network_namespace
from umbilical.lab.kubelet import node_runtime
from umbilical.lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.timeout(240), pytest.mark.real(*PROGRAMS)]
NODE = "master-0"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("power") / "lab"
    with built(place, small_cluster()):
        yield Lab.open(place)


def pids_of(seconds: str) -> list[int]:
    """Find who sleeps for so long: every test has its own number."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", seconds.encode()]:
                found.append(int(entry.name))
    return found


def test_a_program_that_left_its_session_ends_too(lab: Lab) -> None:
    leave = (
        "from subprocess import *; Popen(['sleep', '86501'], start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)"
    )
    lab.exec(NODE, ["python3", "-c", leave]).check()
    wait_until(lambda: len(pids_of("86501")) == 1)
    end_everything(lab, NODE)
    assert pids_of("86501") == []
    assert lab.exec(NODE, ["true"]).exit_code == 0


def test_whoever_is_in_the_pods_control_group_ends_wherever_it_is(lab: Lab) -> None:
    group = node_runtime.make_group(lab, NODE)
    # As in a container: with mounts of its own, and deaf to SIGTERM.
    deaf = "trap '' TERM; exec sleep 86502"
    lab.start("bootstrap", "container", ["unshare", "--mount", "sh", "-c", deaf])
    wait_until(lambda: len(pids_of("86502")) == 1)
    (pid,) = pids_of("86502")
    for tree in cgroups.find(group):
        (tree / "cgroup.procs").write_text(str(pid))
    end_everything(lab, NODE)
    assert pids_of("86502") == []


def test_programs_of_other_nodes_run_on(lab: Lab) -> None:
    lab.start("bootstrap", "other", ["sleep", "86503"])
    wait_until(lambda: len(pids_of("86503")) == 1)
    end_everything(lab, NODE)
    assert len(pids_of("86503")) == 1
    lab.stop("bootstrap", "other")


def test_mounts_rules_and_files_that_a_boot_would_not_find_are_gone(lab: Lab) -> None:
    make = (
        "mkdir -p '/run/with blank/inner' && mount -t tmpfs none '/run/with blank' && mkdir '/run/with blank/inner'"
        " && mount -t tmpfs none '/run/with blank/inner' && nft add table ip kube-proxy && touch /run/file"
    )
    lab.exec(NODE, ["sh", "-c", make]).check()
    assert "/run/with blank/inner" in mount_points(lab, NODE)
    forget_runtime_state(lab, NODE)
    assert [point for point in mount_points(lab, NODE) if point.startswith("/run")] == []
    assert "kube-proxy" not in lab.exec(NODE, ["nft", "list", "tables"]).text
    # The node's own way out for its pods is made once, with the node.
    assert "umbilical_pods" in lab.exec(NODE, ["nft", "list", "tables"]).text
    assert lab.exec(NODE, ["ls", "/run"]).text == ""


def test_control_groups_of_its_pods_are_gone(lab: Lab) -> None:
    group = node_runtime.make_group(lab, NODE)
    cgroups.make(f"{group}/kubepods/pod1")
    forget_runtime_state(lab, NODE)
    assert cgroups.find(group) == []


def test_a_nodes_network_is_found_from_outside(lab: Lab) -> None:
    seen = namespaces.in_network(network_namespace(lab, NODE), lambda: os.stat(namespaces.THREAD_NETWORK).st_ino)
    assert f"net:[{seen}]" == lab.exec(NODE, ["readlink", "/proc/self/ns/net"]).text.strip()
