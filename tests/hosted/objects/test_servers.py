"""The servers: container, files on a node, Services, Routes and NetworkPolicies."""

from typing import Any

import pytest
import yaml
from tests.support.hosted_certificates import hosted_set
from tests.support.hosted_specs import hosted_spec

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_server import server_flags as table
from umbilical.hosted.objects.control_plane_files import (
    add_static_files,
    egress_config_map,
    egress_selector,
    static_volumes,
)
from umbilical.hosted.objects.server import (
    DRAIN_SECONDS,
    GRACE_SECONDS,
    STOP_DELAY_SECONDS,
    client_mounts,
    pod_volumes,
    server_container,
    server_flags,
)
from umbilical.hosted.objects.services import agent_service, frontend_service, network_policies, routes, services
from umbilical.hosted.objects.spec import (
    HostedSpec,
    KubeApiserver,
    Leases,
    Monitoring,
    Pki,
    Publishing,
    ServerCount,
    ServerProgram,
    Strategy,
    TlsProfile,
    Workload,
)
from umbilical.hosted.pki.table import Signers
from umbilical.manifests.tree import AssetTree

SPECS = {
    "plain": hosted_spec(),
    "upstream": hosted_spec(server=ServerProgram.UPSTREAM),
    "leases": hosted_spec(server_count=ServerCount.LEASES, leases=Leases("servers-kubeconfig")),
    "modern": hosted_spec(tls_profile=TlsProfile.MODERN),
    "single signer": hosted_spec(pki=Pki(signers=Signers.SINGLE)),
    "one replica": hosted_spec(replicas=1),
}


def flags(spec: HostedSpec) -> dict[str, str]:
    return dict(flag.removeprefix("--").split("=", 1) for flag in server_flags(spec))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_agents_authority_is_always_there_cve_2026_16242(spec: HostedSpec) -> None:
    found = flags(spec)
    assert found["cluster-ca-cert"] == "/etc/konnectivity/ca/cluster-client-ca.crt"
    assert found["server-ca-cert"] == "/etc/konnectivity/ca/server-client-ca.crt"
    mounts = server_container(spec)["volumeMounts"]
    assert "/etc/konnectivity/ca" in [mount["mountPath"] for mount in mounts]
    mounted = {mount["name"] for mount in (*mounts, *client_mounts())}
    assert {volume["name"] for volume in pod_volumes(spec)} == mounted
    known = FlagSet("proxy-server", table(), klog.FLAGS)
    known.parse(server_flags(spec))
    assert known.number("server-count") == spec.replicas


def test_ports_mode_and_strategies_are_hypershifts_and_identities_are_bound() -> None:
    wanted = {
        *("--server-port=8090", "--agent-port=8091", "--health-port=2041", "--admin-port=8093", "--mode=http-connect"),
        *("--proxy-strategies=destHost,defaultRoute", "--keepalive-time=30s", "--frontend-keepalive-time=30s"),
        *("--tls-min-version=VersionTLS12", "--frontend-identities=CN=konnectivity-client"),
        "--agent-identities=/etc/konnectivity/identities/identities",
    }
    assert wanted <= set(server_flags(hosted_spec()))


def test_a_server_that_is_stopped_lets_tunnels_end_within_the_pods_time() -> None:
    assert flags(hosted_spec())["graceful-shutdown-timeout"] == f"{DRAIN_SECONDS}s"
    assert STOP_DELAY_SECONDS + DRAIN_SECONDS < GRACE_SECONDS
    assert server_container(hosted_spec())["lifecycle"] == {"preStop": {"sleep": {"seconds": 70}}}


def test_six_suites_of_tls_1_2_and_none_to_choose_of_1_3() -> None:
    assert len(flags(hosted_spec())["cipher-suites"].split(",")) == 6
    modern = flags(hosted_spec(tls_profile=TlsProfile.MODERN))
    assert modern["tls-min-version"] == "VersionTLS13"
    assert "cipher-suites" not in modern


def test_leases_take_a_kubeconfig_and_are_kept_in_the_hosted_cluster() -> None:
    spec = SPECS["leases"]
    found = flags(spec)
    assert found["enable-lease-controller"] == "true"
    assert found["lease-namespace"] == "kube-system"
    assert found["kubeconfig"] == "/etc/konnectivity/kubeconfig/kubeconfig"
    secrets = [volume["secret"]["secretName"] for volume in pod_volumes(spec) if "secret" in volume]
    assert "servers-kubeconfig" in secrets


def test_readiness_does_not_ask_for_agents_or_kube_apiserver_would_never_be_ready() -> None:
    container = server_container(hosted_spec())
    for probe, timing in (
        ("readinessProbe", {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3}),
        (
            "livenessProbe",
            {"initialDelaySeconds": 120, "periodSeconds": 60, "timeoutSeconds": 30, "failureThreshold": 3},
        ),
    ):
        found: dict[str, Any] = dict(container[probe])
        assert found.pop("httpGet") == {"path": "/healthz", "port": 2041, "scheme": "HTTP"}
        assert found == timing


def test_the_container_has_no_privilege_and_requests_as_hypershift_has_them() -> None:
    container = server_container(hosted_spec())
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["resources"] == {"requests": {"cpu": "10m", "memory": "50Mi"}}
    assert (container["name"], container["command"]) == ("konnectivity-server", ["/usr/bin/proxy-server"])


SPEC = hosted_spec(kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml"))


def test_every_file_that_server_and_kube_apiserver_are_told_of_lies_on_the_node() -> None:
    tree = AssetTree()
    add_static_files(tree, "node", SPEC, hosted_set())
    cluster = yaml.safe_load(tree["node/etc/kubernetes/konnectivity/egress-selector/config.yaml"].content)
    tcp = cluster["egressSelections"][2]["connection"]["transport"]["tcp"]
    assert tcp["url"] == "https://127.0.0.1:8090"
    named = [path for flag in server_flags(SPEC) if (path := flag.partition("=")[2]).startswith("/etc/")]
    assert len(named) == 7
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in static_volumes(SPEC) if "hostPath" in volume}
    for mounts, paths in (
        (server_container(SPEC)["volumeMounts"], named),
        (client_mounts(), tcp["tlsConfig"].values()),
    ):
        folders = {mount["mountPath"]: on_host.get(mount["name"], "") for mount in mounts}
        for folder, _, name in (path.rpartition("/") for path in paths):
            assert f"node{folders[folder]}/{name}" in tree
    assert [asset.mode for asset in tree if asset.path.endswith(".key")] == [0o600] * 3


def test_upstreams_server_has_no_rules_to_read() -> None:
    upstream = hosted_spec(server=ServerProgram.UPSTREAM)
    assert not [name for name in flags(upstream) if "identities" in name]
    assert "agent-identities" not in {volume["name"] for volume in pod_volumes(upstream)}
    spec = SPEC.replace(server=ServerProgram.UPSTREAM)
    tree = AssetTree()
    add_static_files(tree, "node", spec, hosted_set())
    assert not [asset.path for asset in tree if "identities" in asset.path]
    assert "agent-identities" not in {volume["name"] for volume in static_volumes(spec)}


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


def test_agents_reach_servers_before_they_are_ready_and_clients_only_where_there_is_one() -> None:
    for publishing in (hosted_spec().publishing, NODE_PORT, LOAD_BALANCER):
        assert agent_service(published(publishing))["spec"]["publishNotReadyAddresses"] is True
    assert frontend_service(hosted_spec(replicas=3))["spec"]["publishNotReadyAddresses"] is False
    assert frontend_service(hosted_spec(replicas=1))["spec"]["publishNotReadyAddresses"] is True
    # Clients reach 8090 inside the cluster only.
    body = frontend_service(published(LOAD_BALANCER))["spec"]
    assert (body["type"], [port["port"] for port in body["ports"]]) == ("ClusterIP", [8090])


def test_a_route_passes_tls_through_spreads_agents_and_carries_labels_for_a_router_of_its_own() -> None:
    route = routes(hosted_spec())[0]
    assert route["spec"]["tls"] == {"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"}
    assert route["spec"]["host"] == "konnectivity.guest.example"
    assert route["spec"]["to"]["name"] == "konnectivity-server"
    assert route["spec"]["port"] == {"targetPort": 8091}
    assert route["metadata"]["annotations"] == {"haproxy.router.openshift.io/balance": "roundrobin"}
    assert agent_service(hosted_spec())["spec"]["type"] == "ClusterIP"
    label = {"hypershift.openshift.io/hosted-control-plane": "clusters-guest"}
    spec = published(Publishing(Strategy.ROUTE, "konnectivity-server.apps.guest.hypershift.local", 443, label))
    assert routes(spec)[0]["metadata"]["labels"] == {**spec.labels, **label}
    assert label.keys().isdisjoint(agent_service(spec)["metadata"]["labels"])


def test_a_node_port_is_the_published_one() -> None:
    body = agent_service(published(NODE_PORT))["spec"]
    assert body["type"] == "NodePort"
    assert body["ports"] == [{"name": "agents", "port": 8091, "targetPort": 8091, "protocol": "TCP", "nodePort": 30091}]
    assert routes(published(NODE_PORT)) == []


def test_a_load_balancer_tells_its_name_to_dns_and_leaves_the_port_inside_alone() -> None:
    found = agent_service(published(LOAD_BALANCER))
    assert found["spec"]["type"] == "LoadBalancer"
    assert found["metadata"]["annotations"] == {"external-dns.alpha.kubernetes.io/hostname": "tunnel.example"}
    assert [port["port"] for port in found["spec"]["ports"]] == [8091]
    by_address = agent_service(published(Publishing(Strategy.LOAD_BALANCER, "203.0.113.9", 443)))
    assert "annotations" not in by_address["metadata"]
    assert [(port["port"], port["targetPort"]) for port in by_address["spec"]["ports"]] == [(8091, 8091), (443, 8091)]


SERVERS = {"app": "kube-apiserver"}


def sources(spec: HostedSpec, port: int, pods: dict[str, str] = SERVERS) -> list[Any]:
    """Return the sources that policies allow to a port of these pods; None: everybody."""
    rules = [
        rule
        for policy in network_policies(spec)
        if policy["spec"]["podSelector"]["matchLabels"] == pods
        for rule in policy["spec"]["ingress"]
    ]
    return [rule.get("from") for rule in rules if port in [one["port"] for one in rule["ports"]]]


def test_each_port_is_open_to_whom_it_is_for() -> None:
    spec = hosted_spec(
        monitoring=Monitoring(namespaces=("prometheus",)), kube_apiserver=KubeApiserver(ports=(6443, 2040))
    )
    prometheus = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "prometheus"}}}]
    # kube-apiserver's own ports stay open; the admin port is closed.
    expected = {8091: [None], 8090: [[{"podSelector": {}}]], 2041: [prometheus], 6443: [None], 2040: [None], 8093: []}
    assert {port: sources(spec, port) for port in expected} == expected
    assert sources(spec, 2041, {"app": "konnectivity-agent"}) == [prometheus]
    assert {tuple(policy["spec"]["policyTypes"]) for policy in network_policies(spec)} == {("Ingress",)}
    for publishing in (NODE_PORT, LOAD_BALANCER):
        assert sources(published(publishing), 8091) == [None]


def test_no_namespace_never_means_everybody_and_no_agent_needs_no_policy() -> None:
    for monitoring in (Monitoring(enabled=False), Monitoring(namespaces=())):
        assert sources(hosted_spec(monitoring=monitoring), 2041) == []
    assert sources(hosted_spec(aggregated_apis=()), 2041, {"app": "konnectivity-agent"}) == []


def test_the_cluster_is_reached_by_http_connect_at_the_service_and_the_rest_directly() -> None:
    found = {one["name"]: one["connection"] for one in egress_selector(hosted_spec())["egressSelections"]}
    assert found["controlplane"] == found["etcd"] == {"proxyProtocol": "Direct"}
    assert found["cluster"]["proxyProtocol"] == "HTTPConnect"
    tcp = found["cluster"]["transport"]["tcp"]
    assert tcp["url"] == "https://konnectivity-server-local:8090"
    folders = {mount["mountPath"] for mount in client_mounts()}
    assert {path.rpartition("/")[0] for path in tcp["tlsConfig"].values()} <= folders
    made = egress_config_map(hosted_spec())
    assert made["metadata"]["name"] == "kas-egress-selector-config"
    assert yaml.safe_load(made["data"]["config.yaml"]) == egress_selector(hosted_spec())
