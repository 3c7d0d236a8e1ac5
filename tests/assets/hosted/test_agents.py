"""Agents on nodes and beside the control plane: what they run, who they are, what they may announce."""

import base64
import ipaddress
from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted import names
from umbilical.assets.hosted.accounts import hosted_accounts, management_accounts, namespace_labels
from umbilical.assets.hosted.agent_daemon_set import agent_daemon_set
from umbilical.assets.hosted.agent_pod import agent_container, agent_flags, agent_volumes, pod_template
from umbilical.assets.hosted.aggregated_apis import aggregated_apis
from umbilical.assets.hosted.control_plane_agent import control_plane_agent, identifiers
from umbilical.assets.hosted.identities import identities_config_map, identities_text
from umbilical.assets.hosted.spec import (
    Agents,
    AggregatedApi,
    ApiGroup,
    DataPlaneProxy,
    HostedSpec,
    Leases,
    Server,
    ServerCount,
)
from umbilical.assets.objects import Object
from umbilical.cli import klog
from umbilical.cli.agent_flags import agent_flags as table
from umbilical.cli.agent_flags import check_agent_flags
from umbilical.cli.pflag import FlagSet
from umbilical.konnectivity.identity import parse_agent_rules
from umbilical.konnectivity.metadata import AgentIdentifiers, parse_agent_identifiers


def pod(spec: HostedSpec) -> Object:
    found: Object = agent_daemon_set(spec, "sum")["spec"]["template"]["spec"]
    return found


def flags(spec: HostedSpec) -> list[str]:
    found: list[str] = pod(spec)["containers"][0]["args"]
    return found


def test_it_stands_where_hypershift_puts_it() -> None:
    found = agent_daemon_set(hosted_spec(), "sum")
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("kube-system", "konnectivity-agent")
    assert found["spec"]["selector"] == {"matchLabels": {"app": "konnectivity-agent"}}
    assert found["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}


def test_it_dials_what_was_published() -> None:
    assert {"--proxy-server-host=konnectivity.guest.example", "--proxy-server-port=443"} <= set(flags(hosted_spec()))
    assert "--agent-identifiers=default-route=true" in flags(hosted_spec())


def test_it_runs_on_every_node_from_the_first_minute() -> None:
    found = pod(hosted_spec())
    assert found["tolerations"] == [{"operator": "Exists"}]
    assert (found["hostNetwork"], found["dnsPolicy"]) == (True, "Default")
    assert found["priorityClassName"] == "system-node-critical"


def test_on_the_hosts_network_health_is_asked_and_told_on_loopback() -> None:
    assert "--health-server-host=127.0.0.1" in flags(hosted_spec())
    container = pod(hosted_spec())["containers"][0]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["host"] == "127.0.0.1"


def test_in_the_pod_network_health_is_asked_at_the_pod() -> None:
    spec = hosted_spec(agents=Agents(host_network=False, dns_policy="ClusterFirst"))
    assert "--health-server-host=0.0.0.0" in flags(spec)
    assert "host" not in pod(spec)["containers"][0]["livenessProbe"]["httpGet"]
    assert pod(spec)["dnsPolicy"] == "ClusterFirst"


def test_it_runs_as_nobody_special_and_without_a_token() -> None:
    found = pod(hosted_spec())
    assert found["securityContext"]["runAsUser"] == 1000
    assert found["containers"][0]["securityContext"]["runAsNonRoot"] is True
    assert found["automountServiceAccountToken"] is False
    assert found["serviceAccountName"] == "konnectivity-agent"


def test_leases_are_counted_with_a_token_and_never_below_a_servers_word() -> None:
    spec = hosted_spec(server_count=ServerCount.LEASES, leases=Leases("secret"))
    wanted = {"--count-server-leases=true", "--server-count-source=max", "--lease-namespace=kube-system"}
    assert wanted <= set(flags(spec))
    assert pod(spec)["automountServiceAccountToken"] is True
    assert not [flag for flag in flags(hosted_spec()) if "lease" in flag]


@pytest.mark.parametrize("url", ["http://proxy:3128", "http://user:hunter2@proxy:3128"])
def test_the_users_proxy_comes_from_a_secret_and_is_not_in_the_manifest(url: str) -> None:
    spec = hosted_spec(proxy=DataPlaneProxy(https=url))
    assert pod(spec)["containers"][0]["envFrom"] == [{"secretRef": {"name": "konnectivity-data-plane-proxy"}}]
    assert "proxy:3128" not in str(agent_daemon_set(spec, "sum"))
    assert "envFrom" not in pod(hosted_spec())["containers"][0]


FLAGS = agent_flags("tunnel.example", 443, "default-route=true", "127.0.0.1")


def test_every_flag_is_one_that_the_agent_knows() -> None:
    known = FlagSet("proxy-agent", table(), klog.FLAGS)
    known.parse([flag for flag in FLAGS if "/etc/" not in flag])
    check_agent_flags(known)
    assert known.text("proxy-server-host") == "tunnel.example"


def test_agents_never_stop_looking_for_servers() -> None:
    assert "--sync-forever=true" in FLAGS


def test_identifiers_and_intervals_are_hypershifts_but_servers_are_looked_for_more_often() -> None:
    wanted = {"--keepalive-time=30s", "--probe-interval=5s", "--sync-interval=1s", "--sync-interval-cap=10s"}
    assert wanted | {"--agent-identifiers=default-route=true", "--health-server-port=2041"} <= set(FLAGS)
    assert "--health-server-host=127.0.0.1" in FLAGS
    assert not [flag for flag in agent_flags("a", 1, "x") if flag.startswith("--health-server-host")]


def test_an_agent_is_ready_once_a_server_is_reached_and_alive_before() -> None:
    container = agent_container(hosted_spec(), FLAGS)
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert (container["readinessProbe"]["periodSeconds"], container["readinessProbe"]["failureThreshold"]) == (30, 1)
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert (container["livenessProbe"]["periodSeconds"], container["livenessProbe"]["failureThreshold"]) == (30, 6)
    assert (container["startupProbe"]["periodSeconds"], container["startupProbe"]["failureThreshold"]) == (5, 60)
    assert container["resources"]["requests"] == {"cpu": "40m", "memory": "50Mi"}


def test_a_port_is_declared_where_it_is_not_taken_from_the_node() -> None:
    assert [port["containerPort"] for port in agent_container(hosted_spec(), FLAGS)["ports"]] == [2041]
    assert "ports" not in agent_container(hosted_spec(), FLAGS, "127.0.0.1")


def test_an_agent_sees_of_all_authorities_the_one_that_it_needs() -> None:
    volume = agent_volumes("secret", "cluster-ca.crt")[1]
    assert volume["configMap"]["items"] == [{"key": "cluster-ca.crt", "path": "ca.crt"}]


def test_new_certificates_restart_agents_that_read_them_only_once() -> None:
    upstream = pod_template(hosted_spec(server=Server.UPSTREAM), {}, "sum")
    assert upstream["metadata"]["annotations"] == {"umbilical.dev/certificates-sha256": "sum"}
    assert "annotations" not in pod_template(hosted_spec(), {}, "sum")["metadata"]


def pod_of_control_plane_agent(spec: HostedSpec) -> Object:
    found: Object = control_plane_agent(spec, "sum")[0]["spec"]["template"]["spec"]
    return found


def apis(*addresses: str) -> tuple[AggregatedApi, ...]:
    return tuple(
        AggregatedApi(f"api-{number}", (ipaddress.ip_address(text),) if text else ())
        for number, text in enumerate(addresses)
    )


def test_it_announces_every_known_address_and_omits_those_that_are_not_known() -> None:
    spec = hosted_spec(aggregated_apis=apis("172.30.1.1", "", "fd00::5"))
    assert identifiers(spec) == "ipv4=172.30.1.1&ipv6=fd00::5"
    announced = parse_agent_identifiers(identifiers(spec))
    assert (announced.ipv4, announced.ipv6, announced.default_route) == (("172.30.1.1",), ("fd00::5",), False)
    assert f"--agent-identifiers={identifiers(spec)}" in pod_of_control_plane_agent(spec)["containers"][0]["args"]


def test_it_waits_for_its_first_address() -> None:
    assert control_plane_agent(hosted_spec(aggregated_apis=apis("", "")), "sum") == []
    assert control_plane_agent(hosted_spec(aggregated_apis=()), "sum") == []


def test_it_dials_the_service_in_its_own_namespace_with_a_certificate_of_its_own() -> None:
    found = pod_of_control_plane_agent(hosted_spec())
    flags = found["containers"][0]["args"]
    assert {"--proxy-server-host=konnectivity-server", "--proxy-server-port=8091"} <= set(flags)
    assert found["volumes"][0]["secret"]["secretName"] == "konnectivity-agent-control-plane"
    assert found["volumes"][1]["configMap"]["items"] == [{"key": "cluster-ca.crt", "path": "ca.crt"}]
    assert found["automountServiceAccountToken"] is False


def test_it_is_as_important_as_kube_apiserver() -> None:
    assert pod_of_control_plane_agent(hosted_spec())["priorityClassName"] == "hypershift-api-critical"
    assert pod_of_control_plane_agent(hosted_spec(priority_class="of-my-own"))["priorityClassName"] == "of-my-own"


def test_replicas_stand_apart_and_do_not_all_go_at_once() -> None:
    deployment, budget = control_plane_agent(hosted_spec(), "sum")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    required = pod_of_control_plane_agent(hosted_spec())["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert [term["topologyKey"] for term in required] == ["kubernetes.io/hostname"]
    assert (budget["kind"], budget["spec"]["maxUnavailable"]) == ("PodDisruptionBudget", 1)


def test_one_alone_has_no_budget_that_would_keep_its_node_from_being_drained() -> None:
    spec = hosted_spec(agents=Agents(control_plane_replicas=1))
    assert [one["kind"] for one in control_plane_agent(spec, "sum")] == ["Deployment"]


def test_its_user_is_the_management_clusters_choice_or_a_given_one() -> None:
    assert "runAsUser" not in pod_of_control_plane_agent(hosted_spec())["securityContext"]
    assert pod_of_control_plane_agent(hosted_spec())["securityContext"]["runAsNonRoot"] is True
    given = pod_of_control_plane_agent(hosted_spec(agents=Agents(control_plane_user=1001)))["securityContext"]
    assert (given["runAsUser"], given["fsGroup"]) == (1001, 1001)


def test_it_may_run_on_nodes_that_are_kept_for_control_planes() -> None:
    assert {one["key"]: one["value"] for one in pod_of_control_plane_agent(hosted_spec())["tolerations"]} == {
        "hypershift.openshift.io/control-plane": "true",
        "hypershift.openshift.io/cluster": "clusters-guest",
    }


def test_it_is_drawn_to_nodes_that_are_kept_for_control_planes_and_to_its_own_one() -> None:
    affinity = pod_of_control_plane_agent(hosted_spec())["affinity"]
    drawn = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    terms = [(one["weight"], one["preference"]["matchExpressions"]) for one in drawn]
    assert terms == [
        (50, [{"key": "hypershift.openshift.io/control-plane", "operator": "In", "values": ["true"]}]),
        (100, [{"key": "hypershift.openshift.io/cluster", "operator": "In", "values": ["clusters-guest"]}]),
    ]
    (beside,) = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term = beside["podAffinityTerm"]
    assert (beside["weight"], term["topologyKey"]) == (100, "kubernetes.io/hostname")
    assert term["labelSelector"]["matchLabels"] == {"hypershift.openshift.io/hosted-control-plane": "clusters-guest"}


LEASES = hosted_spec(server_count=ServerCount.LEASES, leases=Leases("secret", "somebody"))


def test_accounts_have_no_token_of_their_own() -> None:
    found = [*management_accounts(hosted_spec()), *hosted_accounts(hosted_spec())]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in found] == [
        ("ServiceAccount", "clusters-guest"),
        ("ServiceAccount", "kube-system"),
    ]
    assert all(one["automountServiceAccountToken"] is False for one in found)


def test_no_agent_beside_the_control_plane_has_no_account() -> None:
    assert management_accounts(hosted_spec(aggregated_apis=())) == []


def test_rights_are_to_leases_and_nothing_else_and_only_where_leases_are_counted() -> None:
    assert [one["kind"] for one in hosted_accounts(hosted_spec())] == ["ServiceAccount"]
    found = hosted_accounts(LEASES)
    rules = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "Role"}
    assert {name: (rule[0]["resources"], rule[0]["verbs"]) for name, rule in rules.items()} == {
        "konnectivity-server-leases": (["leases"], ["get", "create", "update", "list", "delete"]),
        "konnectivity-agent-leases": (["leases"], ["get", "list", "watch"]),
    }


def test_rights_are_given_to_the_named_user_and_to_agents() -> None:
    subjects = [one["subjects"][0] for one in hosted_accounts(LEASES) if one["kind"] == "RoleBinding"]
    assert [(one["kind"], one["name"]) for one in subjects] == [
        ("User", "somebody"),
        ("ServiceAccount", "konnectivity-agent"),
    ]


def test_pods_on_the_hosts_network_are_let_into_the_namespace() -> None:
    labels = namespace_labels(hosted_spec())[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["security.openshift.io/scc.podSecurityLabelSync"] == "false"
    assert namespace_labels(hosted_spec(agents=Agents(host_network=False))) == []


NODE, CONTROL_PLANE = ["CN=konnectivity-agent"], ["CN=konnectivity-agent-control-plane"]


def test_an_agent_on_a_node_may_not_claim_the_address_of_an_aggregated_api() -> None:
    rules = parse_agent_rules(identities_text(hosted_spec()))
    assert rules.refusal(NODE, AgentIdentifiers(ipv4=("172.30.12.7",)))
    assert rules.refusal(CONTROL_PLANE, AgentIdentifiers(ipv4=("172.30.12.7",))) == ""


def test_the_control_plane_agent_may_not_claim_what_is_for_nodes() -> None:
    rules = parse_agent_rules(identities_text(hosted_spec()))
    assert rules.refusal(CONTROL_PLANE, AgentIdentifiers(default_route=True))
    assert rules.refusal(NODE, AgentIdentifiers(default_route=True)) == ""


def test_nobody_else_connects() -> None:
    rules = parse_agent_rules(identities_text(hosted_spec()))
    assert rules.refusal(["CN=konnectivity-client"], AgentIdentifiers())


def test_ipv6_addresses_are_named_as_such() -> None:
    api = AggregatedApi("a", (ipaddress.ip_address("fd00::5"), ipaddress.ip_address("172.30.0.1")))
    text = identities_text(hosted_spec(aggregated_apis=(api,)))
    assert text.splitlines()[1] == "CN=konnectivity-agent-control-plane ipv6=fd00::5 ipv4=172.30.0.1"


def test_without_an_address_only_agents_on_nodes_are_known() -> None:
    assert identities_text(hosted_spec(aggregated_apis=())) == "CN=konnectivity-agent default-route=true\n"


def test_the_rules_are_in_a_config_map_of_the_control_plane() -> None:
    found = identities_config_map(hosted_spec())
    assert found["metadata"]["namespace"] == "clusters-guest"
    assert list(found["data"]) == [names.IDENTITIES_KEY]


DUAL = AggregatedApi(
    "packageserver",
    (ipaddress.ip_address("172.30.1.1"), ipaddress.ip_address("fd00::5")),
    (ApiGroup("packages.operators.coreos.com", "v1", 2000, 15),),
)


def by_kind(*apis: AggregatedApi) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in aggregated_apis(hosted_spec(aggregated_apis=apis)):
        found.setdefault(one["kind"], []).append(one)
    return found


def test_a_service_without_selector_leads_to_addresses_of_the_management_cluster() -> None:
    found = by_kind(DUAL)
    service = found["Service"][0]
    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == ("default", "packageserver")
    assert "selector" not in service["spec"]
    assert found["Endpoints"][0]["subsets"][0]["addresses"] == [{"ip": "172.30.1.1"}, {"ip": "fd00::5"}]
    assert [port["port"] for port in service["spec"]["ports"]] == [443]


def test_there_is_a_slice_for_each_family_and_kubernetes_makes_no_other() -> None:
    found = by_kind(DUAL)
    assert [(one["addressType"], one["endpoints"][0]["addresses"]) for one in found["EndpointSlice"]] == [
        ("IPv4", ["172.30.1.1"]),
        ("IPv6", ["fd00::5"]),
    ]
    for one in found["EndpointSlice"]:
        assert one["metadata"]["labels"]["kubernetes.io/service-name"] == "packageserver"
    assert found["Endpoints"][0]["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"] == "true"


def test_an_api_service_is_verified_by_the_given_authority() -> None:
    api = by_kind(DUAL)["APIService"][0]
    assert api["metadata"]["name"] == "v1.packages.operators.coreos.com"
    assert (api["spec"]["groupPriorityMinimum"], api["spec"]["versionPriority"]) == (2000, 15)
    assert b"BEGIN CERTIFICATE" in base64.b64decode(api["spec"]["caBundle"])
    assert "insecureSkipTLSVerify" not in api["spec"]


def test_nothing_is_there_before_an_address_is_known() -> None:
    assert by_kind(AggregatedApi("late", (), (ApiGroup("late.example"),))) == {}
