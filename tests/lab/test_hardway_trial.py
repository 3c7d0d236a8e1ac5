"""The service by which a cluster is tried: whole objects, spread, unprivileged, and named as they are asked for."""

from typing import Any

from umbilical.lab.hardway_trial import LabTrial
from umbilical.lab.images import PYTHON_PROGRAMS, UMBILICAL


def by_kind(objects: Any) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in objects}


def test_the_webhooks_configuration_comes_last_and_its_pod_is_bound_to_the_node() -> None:
    trial = LabTrial()
    objects = list(trial.webhook_objects("master-0.example.com"))
    assert objects[0]["kind"] == "Namespace"
    assert objects[-1]["kind"] == "ValidatingWebhookConfiguration"
    assert objects[-1]["metadata"]["name"] == trial.webhook_name
    pod = by_kind(objects)["Pod"]
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (trial.pod, trial.namespace)
    assert pod["spec"]["nodeName"] == "master-0.example.com"


def test_every_asking_makes_new_keys() -> None:
    first, second = (by_kind(LabTrial().webhook_objects("node"))["Secret"]["data"] for _ in range(2))
    assert first["tls.key"] != second["tls.key"]


def test_the_webhook_has_something_to_allow_and_something_to_deny() -> None:
    allowed, denied = (LabTrial().judged(verdict) for verdict in ("allow", "deny"))
    assert allowed["kind"] == denied["kind"]
    assert allowed["metadata"]["labels"] != denied["metadata"]["labels"]


def test_the_workload_is_spread_and_its_service_leads_to_it() -> None:
    trial = LabTrial()
    objects = by_kind(trial.workload(3))
    deployment, service = objects["Deployment"], objects["Service"]
    template = deployment["spec"]["template"]
    assert deployment["metadata"]["name"] == service["metadata"]["name"] == trial.workload_name
    assert deployment["spec"]["replicas"] == 3
    assert (
        template["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    )
    assert [port["port"] for port in service["spec"]["ports"]] == [trial.workload_port]
    (container,) = template["spec"]["containers"]
    assert container["image"] == UMBILICAL
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_what_it_runs_is_in_its_image() -> None:
    program, url = LabTrial().fetch_command("http://trial/healthz")
    assert (program in PYTHON_PROGRAMS, url) == (True, "http://trial/healthz")
