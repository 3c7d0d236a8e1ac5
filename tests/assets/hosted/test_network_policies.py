"""Who may reach which port."""

from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.network_policies import network_policies
from umbilical.assets.hosted.spec import HostedSpec, KubeApiserver, Monitoring, Publishing, Strategy

SERVERS = {"app": "kube-apiserver"}
STRATEGIES = {
    "route": Publishing(Strategy.ROUTE, "a.example", 443),
    "nodeport": Publishing(Strategy.NODE_PORT, "10.0.0.9", 30091),
    "loadbalancer": Publishing(Strategy.LOAD_BALANCER, "203.0.113.9", 8091),
}


def sources(spec: HostedSpec, port: int, pods: dict[str, str] = SERVERS) -> list[Any]:
    """Return whom policies let in to a port of these pods; None stands for everybody."""
    rules = [
        rule
        for policy in network_policies(spec)
        if policy["spec"]["podSelector"]["matchLabels"] == pods
        for rule in policy["spec"]["ingress"]
    ]
    return [rule.get("from") for rule in rules if port in [one["port"] for one in rule["ports"]]]


@pytest.mark.parametrize("publishing", STRATEGIES.values(), ids=STRATEGIES)
def test_8091_is_open_to_everybody_for_every_strategy(publishing: Publishing) -> None:
    assert sources(hosted_spec(publishing=publishing), 8091) == [None]


def test_8090_is_open_to_the_namespace() -> None:
    assert sources(hosted_spec(), 8090) == [[{"podSelector": {}}]]


def test_2041_is_open_to_monitoring_alone() -> None:
    spec = hosted_spec(monitoring=Monitoring(namespaces=("prometheus",)))
    wanted = [[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "prometheus"}}}]]
    assert sources(spec, 2041) == wanted
    assert sources(spec, 2041, {"app": "konnectivity-agent"}) == wanted


@pytest.mark.parametrize("monitoring", [Monitoring(enabled=False), Monitoring(namespaces=())])
def test_no_namespace_never_means_everybody(monitoring: Monitoring) -> None:
    assert sources(hosted_spec(monitoring=monitoring), 2041) == []


def test_kube_apiserver_is_not_closed_by_the_policies_that_select_its_pods() -> None:
    spec = hosted_spec(kube_apiserver=KubeApiserver(ports=(6443, 2040)))
    assert sources(spec, 6443) == sources(spec, 2040) == [None]


def test_the_admin_port_is_open_to_nobody() -> None:
    assert sources(hosted_spec(), 8093) == []


def test_policies_speak_of_what_comes_in_only() -> None:
    assert {tuple(policy["spec"]["policyTypes"]) for policy in network_policies(hosted_spec())} == {("Ingress",)}


def test_no_agent_beside_the_control_plane_needs_no_policy() -> None:
    assert sources(hosted_spec(aggregated_apis=()), 2041, {"app": "konnectivity-agent"}) == []
