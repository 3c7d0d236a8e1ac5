"""What NetworkPolicies let in: selectors, sources, ports by number, range and name."""

from typing import Any

import pytest

from umbilical.hosted.network_policy import opens, selecting, selects

LABELS = {"app": "kube-apiserver", "tier": "control-plane"}
PORT = {"port": 8091, "protocol": "TCP"}


def policy(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"podSelector": {"matchLabels": {"app": "kube-apiserver"}}, "ingress": list(rules), **spec}}


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ({}, True),
        ({"matchLabels": {"app": "kube-apiserver"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchLabels": {"app": "kube-apiserver", "more": "x"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["kube-apiserver", "x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "more", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "more", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "more", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Odd"}]}, False),
        ("odd", False),
    ],
)
def test_selectors_are_kubernetes_own(selector: Any, holds: bool) -> None:
    assert selects(selector, LABELS) is holds


def test_only_policies_for_ingress_of_these_pods_close_them() -> None:
    closing = policy()
    others = [
        policy(podSelector={"matchLabels": {"app": "etcd"}}),
        policy(policyTypes=["Egress"]),
    ]
    assert selecting([*others, closing], LABELS) == [closing]
    assert selecting([{"spec": {}}], LABELS) == [{"spec": {}}]


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({"ports": [PORT]}, True),
        ({}, True),
        ({"ports": [{"port": 6443, "protocol": "TCP"}]}, False),
        ({"ports": [{"port": 8091, "protocol": "UDP"}]}, False),
        ({"ports": [{"port": 8091}]}, True),
        ({"ports": [{"protocol": "TCP"}]}, True),
        ({"ports": [{"port": 8000, "endPort": 8100}]}, True),
        ({"ports": [{"port": 8000, "endPort": 8090}]}, False),
        ({"ports": [{"port": "agents"}]}, True),
        ({"ports": [{"port": "clients"}]}, False),
        ({"ports": [PORT], "from": [{"podSelector": {}}]}, False),
        ({"ports": [PORT], "from": [{"namespaceSelector": {}}]}, False),
        ({"ports": [PORT], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, False),
        ({"ports": [PORT], "from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, True),
        ({"ports": [PORT], "from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}, False),
        ({"ports": [PORT], "from": [{"podSelector": {}}, {"ipBlock": {"cidr": "::/0"}}]}, True),
    ],
)
def test_a_rule_opens_the_port_to_everybody_or_not(rule: dict[str, Any], is_open: bool) -> None:
    assert opens(policy(rule), 8091, {"agents": 8091, "clients": 8090}) is is_open


def test_a_policy_without_rules_opens_nothing() -> None:
    assert not opens(policy(), 8091, {})
