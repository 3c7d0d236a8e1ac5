"""How clients and agents find the servers."""

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.services import agent_service, frontend_service, routes, services
from umbilical.assets.hosted.spec import HostedSpec, KubeApiserver, Publishing, Strategy

NODE_PORT = Publishing(Strategy.NODE_PORT, "10.0.0.9", 30091)
LOAD_BALANCER = Publishing(Strategy.LOAD_BALANCER, "tunnel.example", 8091)


def published(publishing: Publishing) -> HostedSpec:
    return hosted_spec(publishing=publishing)


def test_both_services_find_kube_apiservers_pods() -> None:
    spec = hosted_spec(kube_apiserver=KubeApiserver(labels={"app": "kas", "tier": "x"}))
    assert {one["metadata"]["name"]: one["spec"]["selector"] for one in services(spec)} == {
        "konnectivity-server-local": {"app": "kas", "tier": "x"},
        "konnectivity-server": {"app": "kas", "tier": "x"},
    }


@pytest.mark.parametrize("publishing", [hosted_spec().publishing, NODE_PORT, LOAD_BALANCER])
def test_a_new_server_gets_agents_before_its_pod_is_ready(publishing: Publishing) -> None:
    assert agent_service(published(publishing))["spec"]["publishNotReadyAddresses"] is True


def test_clients_reach_ready_servers_only_unless_there_is_one_server() -> None:
    assert frontend_service(hosted_spec(replicas=3))["spec"]["publishNotReadyAddresses"] is False
    assert frontend_service(hosted_spec(replicas=1))["spec"]["publishNotReadyAddresses"] is True


def test_clients_reach_8090_inside_the_cluster_only() -> None:
    body = frontend_service(published(LOAD_BALANCER))["spec"]
    assert (body["type"], [port["port"] for port in body["ports"]]) == ("ClusterIP", [8090])


def test_a_route_passes_tls_through_and_spreads_agents_over_servers() -> None:
    route = routes(hosted_spec())[0]
    assert route["spec"]["tls"] == {"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"}
    assert route["spec"]["host"] == "konnectivity.guest.example"
    assert route["spec"]["to"]["name"] == "konnectivity-server"
    assert route["spec"]["port"] == {"targetPort": 8091}
    assert route["metadata"]["annotations"] == {"haproxy.router.openshift.io/balance": "roundrobin"}
    assert agent_service(hosted_spec())["spec"]["type"] == "ClusterIP"


def test_a_route_carries_labels_by_which_a_router_of_its_own_finds_it() -> None:
    label = {"hypershift.openshift.io/hosted-control-plane": "clusters-guest"}
    spec = published(Publishing(Strategy.ROUTE, "konnectivity-server.apps.guest.hypershift.local", 443, label))
    assert routes(spec)[0]["metadata"]["labels"] == {**spec.labels, **label}
    assert label.keys().isdisjoint(agent_service(spec)["metadata"]["labels"])


def test_a_node_port_is_the_published_one() -> None:
    body = agent_service(published(NODE_PORT))["spec"]
    assert body["type"] == "NodePort"
    assert body["ports"] == [{"name": "agents", "port": 8091, "targetPort": 8091, "protocol": "TCP", "nodePort": 30091}]
    assert routes(published(NODE_PORT)) == []


def test_a_load_balancer_tells_its_name_to_dns() -> None:
    found = agent_service(published(LOAD_BALANCER))
    assert found["spec"]["type"] == "LoadBalancer"
    assert found["metadata"]["annotations"] == {"external-dns.alpha.kubernetes.io/hostname": "tunnel.example"}
    assert [port["port"] for port in found["spec"]["ports"]] == [8091]
    by_address = agent_service(published(Publishing(Strategy.LOAD_BALANCER, "203.0.113.9", 8091)))
    assert "annotations" not in by_address["metadata"]


def test_another_port_outside_leaves_the_one_inside_alone() -> None:
    ports = agent_service(published(Publishing(Strategy.LOAD_BALANCER, "203.0.113.9", 443)))["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in ports] == [(8091, 8091), (443, 8091)]
