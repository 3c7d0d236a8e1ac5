"""The agents beside the control plane."""

import ipaddress

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.control_plane_agent import control_plane_agent, identifiers
from umbilical.assets.hosted.spec import Agents, AggregatedApi, HostedSpec
from umbilical.assets.objects import Object
from umbilical.konnectivity.metadata import parse_agent_identifiers


def pod(spec: HostedSpec) -> Object:
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
    assert f"--agent-identifiers={identifiers(spec)}" in pod(spec)["containers"][0]["args"]


def test_it_waits_for_its_first_address() -> None:
    assert control_plane_agent(hosted_spec(aggregated_apis=apis("", "")), "sum") == []
    assert control_plane_agent(hosted_spec(aggregated_apis=()), "sum") == []


def test_it_dials_the_service_in_its_own_namespace_with_a_certificate_of_its_own() -> None:
    found = pod(hosted_spec())
    flags = found["containers"][0]["args"]
    assert {"--proxy-server-host=konnectivity-server", "--proxy-server-port=8091"} <= set(flags)
    assert found["volumes"][0]["secret"]["secretName"] == "konnectivity-agent-control-plane"
    assert found["volumes"][1]["configMap"]["items"] == [{"key": "cluster-ca.crt", "path": "ca.crt"}]
    assert found["automountServiceAccountToken"] is False


def test_it_is_as_important_as_kube_apiserver() -> None:
    assert pod(hosted_spec())["priorityClassName"] == "hypershift-api-critical"
    assert pod(hosted_spec(priority_class="of-my-own"))["priorityClassName"] == "of-my-own"


def test_replicas_stand_apart_and_do_not_all_go_at_once() -> None:
    deployment, budget = control_plane_agent(hosted_spec(), "sum")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    required = pod(hosted_spec())["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in required] == ["kubernetes.io/hostname"]
    assert (budget["kind"], budget["spec"]["maxUnavailable"]) == ("PodDisruptionBudget", 1)


def test_one_alone_has_no_budget_that_would_keep_its_node_from_being_drained() -> None:
    spec = hosted_spec(agents=Agents(control_plane_replicas=1))
    assert [one["kind"] for one in control_plane_agent(spec, "sum")] == ["Deployment"]


def test_its_user_is_the_management_clusters_choice_or_a_given_one() -> None:
    assert "runAsUser" not in pod(hosted_spec())["securityContext"]
    assert pod(hosted_spec())["securityContext"]["runAsNonRoot"] is True
    given = pod(hosted_spec(agents=Agents(control_plane_user=1001)))["securityContext"]
    assert (given["runAsUser"], given["fsGroup"]) == (1001, 1001)


def test_it_may_run_on_nodes_that_are_kept_for_control_planes() -> None:
    assert {one["key"]: one["value"] for one in pod(hosted_spec())["tolerations"]} == {
        "hypershift.openshift.io/control-plane": "true",
        "hypershift.openshift.io/cluster": "clusters-guest",
    }


def test_it_is_drawn_to_nodes_that_are_kept_for_control_planes_and_to_its_own_one() -> None:
    affinity = pod(hosted_spec())["affinity"]
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
