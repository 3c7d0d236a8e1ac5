"""The node as the API is told of it."""

import ipaddress
from typing import Any

from umbilical.lab.pods.node import Node
from umbilical.lab.pods.node_object import (
    Machine,
    by_type,
    lease_object,
    needs_telling,
    node_object,
    node_status,
    without_not_ready,
)
from umbilical.lab.pods.status import stamp

MACHINE = Machine(2, 1000, "6.1", "amd64")
NODE = Node(
    "master-0",
    ("10.91.0.11", "fd91::11"),
    {},
    (ipaddress.ip_network("10.92.0.0/24"), ipaddress.ip_network("fd92::/64")),
    {"node-role.kubernetes.io/master": "", "zone": "a"},
)
NOW = 1_800_000_000.0


def test_a_node_is_registered_with_its_networks_and_labels() -> None:
    found = node_object(NODE, MACHINE)
    assert found["spec"] == {"podCIDR": "10.92.0.0/24", "podCIDRs": ["10.92.0.0/24", "fd92::/64"]}
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "master-0"
    assert labels["node-role.kubernetes.io/master"] == ""


def test_roles_can_be_left_to_others() -> None:
    labels = node_object(NODE, MACHINE, with_roles=False)["metadata"]["labels"]
    assert "node-role.kubernetes.io/master" not in labels
    assert labels["zone"] == "a"


def test_a_node_without_pods_of_its_own_has_no_network_for_them() -> None:
    assert node_object(Node("bootstrap", ("10.91.0.10",), {}), MACHINE)["spec"] == {}


def test_a_status_says_ready_and_where() -> None:
    status = node_status(NODE, MACHINE, {}, NOW)
    assert by_type(status["conditions"])["Ready"]["status"] == "True"
    assert by_type(status["conditions"])["DiskPressure"]["status"] == "False"
    assert [each["address"] for each in status["addresses"]] == ["10.91.0.11", "fd91::11", "master-0"]
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    assert status["capacity"] == {"cpu": "2", "memory": "1000Ki", "pods": "110"}


def test_it_is_told_again_when_it_is_old_or_not_true() -> None:
    status = node_status(NODE, MACHINE, {}, NOW)
    assert not needs_telling(status, NODE, NOW + 30)
    assert needs_telling(status, NODE, NOW + 90)
    assert needs_telling({}, NODE, NOW)
    unknown = {**status, "conditions": [{**by_type(status["conditions"])["Ready"], "status": "Unknown"}]}
    assert needs_telling(unknown, NODE, NOW)


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = node_status(NODE, MACHINE, {"conditions": [{"type": "Other", "status": "True"}], "images": []}, NOW)
    later = node_status(NODE, MACHINE, first, NOW + 100)
    ready = by_type(later["conditions"])["Ready"]
    assert (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == (stamp(NOW), stamp(NOW + 100))
    assert "Other" in by_type(later["conditions"])
    assert later["images"] == []


def test_only_the_taint_of_birth_is_taken_off() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "mine", "effect": "NoSchedule"}]
    found: dict[str, Any] = {"metadata": {}, "spec": {"podCIDR": "x", "taints": taints}}
    untainted = without_not_ready(found)
    assert untainted is not None
    assert untainted["spec"] == {"podCIDR": "x", "taints": taints[1:]}
    assert without_not_ready(untainted) is None
    assert without_not_ready({"spec": {}}) is None


def test_a_lease_belongs_to_its_node_and_keeps_its_version() -> None:
    fresh = lease_object(NODE, "uid", "now", None)
    assert fresh["metadata"]["namespace"] == "kube-node-lease"
    known = {"metadata": {"name": "master-0", "namespace": "kube-node-lease", "resourceVersion": "7"}}
    renewed = lease_object(NODE, "uid", "later", known)
    assert renewed["metadata"]["resourceVersion"] == "7"
    assert renewed["spec"]["renewTime"] == "later"
