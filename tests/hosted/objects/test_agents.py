"""Agents on nodes and beside the control plane: pods, identities and identifiers."""

import base64
import ipaddress
from typing import Any

from tests.support.hosted_specs import hosted_spec

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_agent import agent_flags as table
from umbilical.cli.drop_ins.proxy_agent import check_agent_flags
from umbilical.hosted.objects import names
from umbilical.hosted.objects.agents import (
    agent_container,
    agent_daemon_set,
    agent_flags,
    control_plane_agent,
    hosted_accounts,
    identifiers,
    management_accounts,
    namespace_labels,
    pod_template,
)
from umbilical.hosted.objects.control_plane_files import identities_config_map, identities_text
from umbilical.hosted.objects.services import aggregated_apis
from umbilical.hosted.objects.spec import (
    Agents,
    AggregatedApi,
    ApiGroup,
    DataPlaneProxy,
    HostedSpec,
    Leases,
    ServerCount,
    ServerProgram,
)
from umbilical.konnectivity.identity import parse_agent_rules
from umbilical.konnectivity.metadata import AgentIdentifiers, parse_agent_identifiers
from umbilical.manifests.objects import Object

SPEC = hosted_spec()
FLAGS = agent_flags("tunnel.example", 443, "default-route=true", "127.0.0.1")
LEASES = hosted_spec(server_count=ServerCount.LEASES, leases=Leases("secret", "somebody"))
NODE, CONTROL_PLANE = ["CN=konnectivity-agent"], ["CN=konnectivity-agent-control-plane"]
DUAL = AggregatedApi(
    "packageserver",
    (ipaddress.ip_address("172.30.1.1"), ipaddress.ip_address("fd00::5")),
    (ApiGroup("packages.operators.coreos.com", "v1", 2000, 15),),
)


def pod(spec: HostedSpec = SPEC) -> Object:
    found: Object = agent_daemon_set(spec, "sum")["spec"]["template"]["spec"]
    return found


def flags(spec: HostedSpec = SPEC) -> list[str]:
    found: list[str] = pod(spec)["containers"][0]["args"]
    return found


def beside(spec: HostedSpec = SPEC) -> Object:
    """The pod of the agents beside the control plane."""
    found: Object = control_plane_agent(spec, "sum")[0]["spec"]["template"]["spec"]
    return found


def apis(*addresses: str) -> tuple[AggregatedApi, ...]:
    return tuple(
        AggregatedApi(f"api-{number}", (ipaddress.ip_address(text),) if text else ())
        for number, text in enumerate(addresses)
    )


def test_agents_on_nodes_stand_where_hypershift_puts_them_and_dial_what_was_published() -> None:
    found = agent_daemon_set(SPEC, "sum")
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("kube-system", "konnectivity-agent")
    assert found["spec"]["selector"] == {"matchLabels": {"app": "konnectivity-agent"}}
    assert found["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}
    wanted = {"--proxy-server-host=konnectivity.guest.example", "--proxy-server-port=443"}
    assert wanted | {"--agent-identifiers=default-route=true"} <= set(flags())


def test_they_run_on_every_node_from_the_first_minute_as_nobody_special_and_without_a_token() -> None:
    found = pod()
    assert found["tolerations"] == [{"operator": "Exists"}]
    assert (found["hostNetwork"], found["dnsPolicy"]) == (True, "Default")
    assert found["priorityClassName"] == "system-node-critical"
    assert found["securityContext"]["runAsUser"] == 1000
    assert found["containers"][0]["securityContext"]["runAsNonRoot"] is True
    assert found["automountServiceAccountToken"] is False
    assert found["serviceAccountName"] == "konnectivity-agent"


def test_health_is_asked_on_loopback_of_a_host_and_at_the_pod_elsewhere() -> None:
    assert "--health-server-host=127.0.0.1" in flags()
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert pod()["containers"][0][probe]["httpGet"]["host"] == "127.0.0.1"
    spec = hosted_spec(agents=Agents(host_network=False, dns_policy="ClusterFirst"))
    assert "--health-server-host=0.0.0.0" in flags(spec)
    assert "host" not in pod(spec)["containers"][0]["livenessProbe"]["httpGet"]
    assert pod(spec)["dnsPolicy"] == "ClusterFirst"


def test_leases_are_counted_with_a_token_and_never_below_a_servers_word() -> None:
    wanted = {"--count-server-leases=true", "--server-count-source=max", "--lease-namespace=kube-system"}
    assert wanted <= set(flags(LEASES))
    assert pod(LEASES)["automountServiceAccountToken"] is True
    assert not [flag for flag in flags() if "lease" in flag]


def test_the_users_proxy_comes_from_a_secret_and_is_not_in_the_manifest() -> None:
    for url in ("http://proxy:3128", "http://user:hunter2@proxy:3128"):
        spec = hosted_spec(proxy=DataPlaneProxy(https=url))
        assert pod(spec)["containers"][0]["envFrom"] == [{"secretRef": {"name": "konnectivity-data-plane-proxy"}}]
        assert "proxy:3128" not in str(agent_daemon_set(spec, "sum"))
    assert "envFrom" not in pod()["containers"][0]


def test_every_flag_is_one_that_the_agent_knows() -> None:
    known = FlagSet("proxy-agent", table(), klog.FLAGS)
    known.parse([flag for flag in FLAGS if "/etc/" not in flag])
    check_agent_flags(known)
    assert known.text("proxy-server-host") == "tunnel.example"


def test_our_agents_deny_what_only_their_machine_should_reach_and_upstreams_do_not_know_the_flag() -> None:
    flag = "--deny-destination=local"
    for spec, has_it in ((SPEC, True), (hosted_spec(server=ServerProgram.UPSTREAM), False)):
        assert (flag in flags(spec), flag in agent_container(spec, FLAGS)["args"]) == (has_it, has_it)


def test_agents_never_stop_looking_for_servers() -> None:
    assert "--sync-forever=true" in FLAGS


def test_identifiers_and_intervals_are_hypershifts_but_servers_are_looked_for_more_often() -> None:
    wanted = {"--keepalive-time=30s", "--probe-interval=5s", "--sync-interval=1s", "--sync-interval-cap=10s"}
    assert wanted | {"--agent-identifiers=default-route=true", "--health-server-port=2041"} <= set(FLAGS)
    assert "--health-server-host=127.0.0.1" in FLAGS
    assert not [flag for flag in agent_flags("a", 1, "x") if flag.startswith("--health-server-host")]


def test_an_agent_is_ready_once_a_server_is_reached_and_alive_before() -> None:
    container = agent_container(SPEC, FLAGS)
    for probe, path, period, failures in (
        ("readinessProbe", "/readyz", 30, 1),
        ("livenessProbe", "/healthz", 30, 6),
        ("startupProbe", container["startupProbe"]["httpGet"]["path"], 5, 60),
    ):
        found = container[probe]
        assert (found["httpGet"]["path"], found["periodSeconds"], found["failureThreshold"]) == (path, period, failures)
    assert container["resources"]["requests"] == {"cpu": "40m", "memory": "50Mi"}
    # A port is declared only without the host's network.
    assert [port["containerPort"] for port in container["ports"]] == [2041]
    assert "ports" not in agent_container(SPEC, FLAGS, "127.0.0.1")


def test_new_certificates_restart_agents_that_read_them_only_once() -> None:
    upstream = pod_template(hosted_spec(server=ServerProgram.UPSTREAM), {}, "sum")
    assert upstream["metadata"]["annotations"] == {"umbilical.dev/certificates-sha256": "sum"}
    assert "annotations" not in pod_template(SPEC, {}, "sum")["metadata"]


def test_the_control_planes_agent_announces_known_addresses_and_waits_for_its_first() -> None:
    spec = hosted_spec(aggregated_apis=apis("172.30.1.1", "", "fd00::5"))
    assert identifiers(spec) == "ipv4=172.30.1.1&ipv6=fd00::5"
    announced = parse_agent_identifiers(identifiers(spec))
    assert (announced.ipv4, announced.ipv6, announced.default_route) == (("172.30.1.1",), ("fd00::5",), False)
    assert f"--agent-identifiers={identifiers(spec)}" in beside(spec)["containers"][0]["args"]
    for none in (apis("", ""), ()):
        assert control_plane_agent(hosted_spec(aggregated_apis=none), "sum") == []


def test_it_dials_the_service_in_its_own_namespace_with_a_certificate_of_its_own() -> None:
    found = beside()
    wanted = {"--proxy-server-host=konnectivity-server", "--proxy-server-port=8091"}
    assert wanted <= set(found["containers"][0]["args"])
    assert found["volumes"][0]["secret"]["secretName"] == "konnectivity-agent-control-plane"
    assert found["volumes"][1]["configMap"]["items"] == [{"key": "cluster-ca.crt", "path": "ca.crt"}]
    assert found["automountServiceAccountToken"] is False


def test_it_is_as_important_as_kube_apiserver_and_its_user_is_the_clusters_choice_or_given() -> None:
    assert beside()["priorityClassName"] == "hypershift-api-critical"
    assert beside(hosted_spec(priority_class="of-my-own"))["priorityClassName"] == "of-my-own"
    assert "runAsUser" not in beside()["securityContext"]
    assert beside()["securityContext"]["runAsNonRoot"] is True
    given = beside(hosted_spec(agents=Agents(control_plane_user=1001)))["securityContext"]
    assert (given["runAsUser"], given["fsGroup"]) == (1001, 1001)


def test_replicas_stand_apart_and_do_not_all_go_at_once() -> None:
    deployment, budget = control_plane_agent(SPEC, "sum")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    required = beside()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in required] == ["kubernetes.io/hostname"]
    assert (budget["kind"], budget["spec"]["maxUnavailable"]) == ("PodDisruptionBudget", 1)
    # A budget for a single replica would block the drain of its node.
    alone = control_plane_agent(hosted_spec(agents=Agents(control_plane_replicas=1)), "sum")
    assert [one["kind"] for one in alone] == ["Deployment"]


def test_it_may_run_on_nodes_that_are_kept_for_control_planes_and_is_drawn_to_them() -> None:
    assert {one["key"]: one["value"] for one in beside()["tolerations"]} == {
        "hypershift.openshift.io/control-plane": "true",
        "hypershift.openshift.io/cluster": "clusters-guest",
    }
    affinity = beside()["affinity"]
    drawn = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [(one["weight"], one["preference"]["matchExpressions"]) for one in drawn] == [
        (50, [{"key": "hypershift.openshift.io/control-plane", "operator": "In", "values": ["true"]}]),
        (100, [{"key": "hypershift.openshift.io/cluster", "operator": "In", "values": ["clusters-guest"]}]),
    ]
    (nearby,) = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term = nearby["podAffinityTerm"]
    assert (nearby["weight"], term["topologyKey"]) == (100, "kubernetes.io/hostname")
    assert term["labelSelector"]["matchLabels"] == {"hypershift.openshift.io/hosted-control-plane": "clusters-guest"}


def test_accounts_have_no_token_of_their_own_and_no_agent_has_no_account() -> None:
    found = [*management_accounts(SPEC), *hosted_accounts(SPEC)]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in found] == [
        ("ServiceAccount", "clusters-guest"),
        ("ServiceAccount", "kube-system"),
    ]
    assert all(one["automountServiceAccountToken"] is False for one in found)
    assert management_accounts(hosted_spec(aggregated_apis=())) == []


def test_rights_are_to_leases_alone_for_the_named_user_and_agents_where_leases_are_counted() -> None:
    found = hosted_accounts(LEASES)
    rules = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "Role"}
    assert {name: (rule[0]["resources"], rule[0]["verbs"]) for name, rule in rules.items()} == {
        "konnectivity-server-leases": (["leases"], ["get", "create", "update", "list", "delete"]),
        "konnectivity-agent-leases": (["leases"], ["get", "list", "watch"]),
    }
    subjects = [one["subjects"][0] for one in found if one["kind"] == "RoleBinding"]
    assert [(one["kind"], one["name"]) for one in subjects] == [
        ("User", "somebody"),
        ("ServiceAccount", "konnectivity-agent"),
    ]


def test_pods_on_the_hosts_network_are_let_into_the_namespace() -> None:
    labels = namespace_labels(SPEC)[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["security.openshift.io/scc.podSecurityLabelSync"] == "false"
    assert namespace_labels(hosted_spec(agents=Agents(host_network=False))) == []


def test_each_agent_may_announce_what_is_its_own_and_nobody_else_connects() -> None:
    rules = parse_agent_rules(identities_text(SPEC))
    address, route = AgentIdentifiers(ipv4=("172.30.12.7",)), AgentIdentifiers(default_route=True)
    assert (rules.refusal(CONTROL_PLANE, address), rules.refusal(NODE, route)) == ("", "")
    assert rules.refusal(NODE, address)
    assert rules.refusal(CONTROL_PLANE, route)
    assert rules.refusal(["CN=konnectivity-client"], AgentIdentifiers())
    found = identities_config_map(SPEC)
    assert found["metadata"]["namespace"] == "clusters-guest"
    assert list(found["data"]) == [names.IDENTITIES_KEY]


def test_addresses_are_named_by_family_and_without_one_only_agents_on_nodes_are_known() -> None:
    api = AggregatedApi("a", (ipaddress.ip_address("fd00::5"), ipaddress.ip_address("172.30.0.1")))
    text = identities_text(hosted_spec(aggregated_apis=(api,)))
    assert text.splitlines()[1] == "CN=konnectivity-agent-control-plane ipv6=fd00::5 ipv4=172.30.0.1"
    assert identities_text(hosted_spec(aggregated_apis=())) == "CN=konnectivity-agent default-route=true\n"


def by_kind(*given: AggregatedApi) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in aggregated_apis(hosted_spec(aggregated_apis=given)):
        found.setdefault(one["kind"], []).append(one)
    return found


def test_a_service_without_selector_leads_to_addresses_of_the_management_cluster() -> None:
    found = by_kind(DUAL)
    service = found["Service"][0]
    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == ("default", "packageserver")
    assert "selector" not in service["spec"]
    assert found["Endpoints"][0]["subsets"][0]["addresses"] == [{"ip": "172.30.1.1"}, {"ip": "fd00::5"}]
    assert [port["port"] for port in service["spec"]["ports"]] == [443]
    assert by_kind(AggregatedApi("late", (), (ApiGroup("late.example"),))) == {}


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
