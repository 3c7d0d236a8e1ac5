"""The objects around the lab's service."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from umbilical.lab.images import lab_images
from umbilical.lab.objects import NAME, NAMESPACE, PLAIN_PORT, judged, make_service, ready_endpoints, service
from umbilical.lab.service_program import parse_arguments
from umbilical.lab.topology import Family, plan_topology
from umbilical.pki.certificate import read_certificates

NOW = datetime.now(UTC)


@pytest.mark.parametrize(("masters", "workers", "node"), [(3, 2, "worker-0"), (3, 0, "master-2"), (1, 0, "master-0")])
def test_it_runs_on_the_first_worker_or_else_on_the_last_master(masters: int, workers: int, node: str) -> None:
    made = make_service(plan_topology(masters=masters, workers=workers), NOW)
    assert made.node == node
    assert made.pod["spec"]["nodeName"] == node


def test_it_is_known_by_the_name_that_kube_apiserver_dials() -> None:
    made = make_service(plan_topology(family=Family.IPV6), NOW)
    [certificate] = read_certificates(made.pair.certificate)
    assert f"{NAME}.{NAMESPACE}.svc" in certificate.names
    [authority] = read_certificates(made.authority)
    assert certificate.authority_identifier == authority.key_identifier


def test_the_service_finds_the_pod_and_its_port() -> None:
    pod = make_service(plan_topology(), NOW).pod
    spec = service()["spec"]
    assert spec["selector"].items() <= pod["metadata"]["labels"].items()
    ports = [port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]]
    assert [port["targetPort"] for port in spec["ports"]] == ports


def test_the_pod_starts_the_program_with_flags_that_it_knows() -> None:
    [container] = make_service(plan_topology(), NOW).pod["spec"]["containers"]
    assert container["command"][0] in lab_images({})[container["image"]].modules
    options = parse_arguments(container["args"])
    assert options.node_name == "worker-0"
    [mount] = container["volumeMounts"]
    assert options.key.startswith(mount["mountPath"])


def test_its_connections_end_with_their_answers_only_where_that_is_wanted() -> None:
    made = make_service(plan_topology(), NOW)
    for wanted in (False, True):
        [container] = replace(made, closes_connections=wanted).pod["spec"]["containers"]
        assert parse_arguments(container["args"]).close_connections is wanted


def test_a_second_container_answers_without_tls_where_that_is_wanted() -> None:
    made = replace(make_service(plan_topology(), NOW), has_plain_port=True, closes_connections=True)
    _, plain = made.pod["spec"]["containers"]
    options = parse_arguments(plain["args"])
    assert (options.plain, options.close_connections, options.listen) == (True, True, ("", PLAIN_PORT))
    assert "volumeMounts" not in plain
    assert plain["readinessProbe"]["httpGet"]["port"] == PLAIN_PORT


def test_what_is_needed_first_comes_first() -> None:
    kinds = [one["kind"] for one in make_service(plan_topology(), NOW).objects]
    assert kinds == ["Namespace", "ServiceAccount", "Secret", "Pod", "Service"]


def test_a_webhook_that_is_down_blocks_nothing_but_what_asks_for_a_verdict() -> None:
    [webhook] = make_service(plan_topology(), NOW).webhook["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": NAMESPACE}
    [selector] = webhook["objectSelector"]["matchExpressions"]
    assert selector["key"] in judged("allow")["metadata"]["labels"]


def test_keys_stay_out_of_repr() -> None:
    assert "PRIVATE" not in repr(make_service(plan_topology(), NOW))


def test_endpoints_are_dialled_unless_they_say_that_they_are_not_ready() -> None:
    endpoints = [
        {"addresses": ["10.92.4.2"], "conditions": {"ready": True}},
        {"addresses": ["10.92.4.3"], "conditions": {"ready": False}},
        {"addresses": ["10.92.4.4"]},
    ]
    assert ready_endpoints({"items": [{"endpoints": endpoints}, {"endpoints": None}]}) == ["10.92.4.2", "10.92.4.4"]
    assert ready_endpoints({"items": None}) == []
