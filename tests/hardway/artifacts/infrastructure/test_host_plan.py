"""What the host must let through: each action with its inverse, and the script on a bridge of its own."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hardway import cluster
from tests.support.netns import Namespace, Network

from umbilical.hardway.artifacts.infrastructure.host_plan import host_actions, open_ports, plan_json, plan_script, vips
from umbilical.hardway.config.cluster import ClusterProfile

SECONDS = 60
OF = cluster()
assert OF.libvirt is not None
LIBVIRT = OF.libvirt


def test_every_action_can_be_seen_done_and_taken_back_and_nat_comes_after_firewalld_was_reloaded() -> None:
    actions = host_actions(OF, LIBVIRT)
    names = [action.id for action in actions]
    assert len(set(names)) == len(names)
    assert all(action.check and action.do and action.undo and action.why for action in actions)
    assert max(index for index, name in enumerate(names) if name.startswith("firewall")) < names.index("masquerade")


def test_the_kubernetes_profile_opens_fewer_ports() -> None:
    assert open_ports(OF) == (6443, 22623, 80, 443)
    assert open_ports(cluster(ClusterProfile.KUBERNETES)) == (6443,)


def test_a_lab_changes_nothing_of_its_host() -> None:
    plan = json.loads(plan_json(cluster(ClusterProfile.KUBERNETES)))
    assert plan["actions"] == []
    assert plan["vips"] == ["192.168.126.10", "192.168.126.11"]
    assert "pool" not in plan


def test_the_plan_says_where_every_machine_keeps_its_files() -> None:
    plan = json.loads(plan_json(OF))
    assert list(plan["pool"]["machines"]) == [node.id for node in OF.nodes]
    assert plan["bridge"] == "virbr-ocp4"


def _script() -> bytes:
    return plan_script(OF, replace(LIBVIRT, uplink="uplink0"))


@pytest.fixture
def host() -> Iterator[Namespace]:
    """A host with the bridge and nothing else: rules may name an interface that is not there."""
    with Network("umbplan") as network:
        namespace = network.create("host")
        bridge = namespace.command("ip", "link", "add", "virbr-ocp4", "type", "bridge")
        subprocess.run(bridge, check=True, timeout=SECONDS)
        yield namespace


def _run(host: Namespace, file: Path, *words: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        host.command("bash", file, *words), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, done.stdout.splitlines()


def _rules(host: Namespace) -> str:
    done = subprocess.run(host.command("iptables-save"), capture_output=True, text=True, timeout=SECONDS, check=True)
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("-A"))


@pytest.mark.root
@pytest.mark.real("iptables")
def test_the_script_does_what_is_missing_and_takes_back_what_it_did(host: Namespace, tmp_path: Path) -> None:
    file, record = tmp_path / "host-plan.sh", tmp_path / "record"
    file.write_bytes(_script())
    ours = ["vip-api", "vip-ingress", "masquerade", "forward-out", "forward-in"]
    status, lines = _run(host, file, "check")
    assert status == 1
    assert [line.removeprefix("missing: ") for line in lines if line.startswith("missing")] == ours
    assert _run(host, file, "apply", str(record))[0] == 0
    assert _run(host, file, "check")[0] == 0
    rules = _rules(host)
    assert rules.count("\n") == 2
    assert "-s 192.168.126.0/24 ! -d 192.168.126.0/24 -o uplink0 -j MASQUERADE" in rules
    assert record.read_text().split() == ours
    assert _run(host, file, "undo", str(record))[0] == 0
    assert _rules(host) == ""
    assert _run(host, file, "check")[0] == 1
    assert not record.exists()


@pytest.mark.root
@pytest.mark.real("iptables")
def test_a_second_application_changes_nothing_and_what_was_there_before_stays(host: Namespace, tmp_path: Path) -> None:
    file, record = tmp_path / "host-plan.sh", tmp_path / "record"
    file.write_bytes(_script())
    vip = vips(OF)["api"]
    before = host.command("ip", "address", "add", f"{vip}/32", "dev", "virbr-ocp4")
    subprocess.run(before, check=True, timeout=SECONDS)
    for _ in range(2):
        assert _run(host, file, "apply", str(record))[0] == 0
    assert "vip-api" not in record.read_text().split()
    assert _rules(host).count("MASQUERADE") == 1
    assert _run(host, file, "undo", str(record))[0] == 0
    assert _run(host, file, "undo", str(record))[0] == 0
    status, lines = _run(host, file, "check")
    assert status == 1
    assert "there: vip-api" in lines


def test_without_a_word_the_script_says_how_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "host-plan.sh"
    file.write_bytes(_script())
    done = subprocess.run(["bash", file], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert "host-plan.sh apply RECORD" in done.stderr
