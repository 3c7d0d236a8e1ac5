"""Two scenarios: an aggregated API, and a custom resource with a conversion webhook, each served by a pod.

kube-apiserver dials the endpoint's address, as on OpenShift; the lab has no kube-proxy for cluster IPs.
"""

import json
from typing import Any, Final

from umbilical.host.waiting import NotYet
from umbilical.lab import objects
from umbilical.lab.kubernetes_testbed import KubernetesTestbed
from umbilical.lab.lab import CompletedCommand
from umbilical.lab.objects import API_SERVICE, NAMESPACE, letter
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.webhook_through_tunnel import set_up_tunnel, start_cluster
from umbilical.lab.service_answers import CONVERTED_BY, LETTER_GROUP
from umbilical.lab.testbed import Testbed
from umbilical.lab.transcript import CallResult

SECONDS: Final = 120.0


def real(testbed: Testbed) -> KubernetesTestbed:
    """Narrow the type: a scenario without a stand-in always runs with Kubernetes."""
    assert isinstance(testbed, KubernetesTestbed), "a scenario with has_stand_in=False never gets a stand-in"
    return testbed


def prepare(testbed: KubernetesTestbed) -> objects.ServiceObjects:
    """Start everything but the tunnel; kube-apiserver does not call the service yet."""
    transcript = testbed.transcript
    start_cluster(testbed)
    with transcript.step("a service in a pod"):
        service = objects.make_service(testbed.lab.topology)
        testbed.apply(*service.objects)
        address = testbed.wait("the service's endpoint", testbed.endpoint, SECONDS)
        transcript.saw(f"{objects.NAMESPACE}/{objects.NAME} on {service.node}, endpoint {address}")
        transcript.shows(webhook=service.node)
    return service


def calls(testbed: KubernetesTestbed, node: str) -> dict[str, int]:
    """Return how often the service was called, by path; asked from its own node."""
    address = testbed.endpoint()
    host = f"[{address}]" if ":" in address else address
    shown = testbed.fetch(node, f"https://{host}:{objects.PORT}/calls")
    return {} if shown is None else {str(path): int(count) for path, count in json.loads(shown).items()}


def _last_words(shown: CompletedCommand) -> str:
    return " ".join(shown.stderr.decode(errors="replace").split())


def _show_calls(testbed: KubernetesTestbed, node: str) -> None:
    counted = calls(testbed, node)
    for path, count in counted.items():
        testbed.transcript.saw(f"{path}: {count}")
    testbed.transcript.figures["calls"] = str(sum(counted.values()))
    testbed.transcript.figures["bytes over the agents' port"] = f"{testbed.tunnel_bytes():,}"


def run_aggregated_api(testbed: Testbed) -> None:
    stage = real(testbed)
    transcript = testbed.transcript
    service = prepare(stage)
    with transcript.step("without the tunnel the aggregated API is unavailable"):
        stage.apply(service.api_service)
        # Other reasons come first; this one is the result of a dial.
        transcript.saw(wait_for_availability(stage, "False", "FailedDiscoveryCheck"))
        transcript.shows(call=CallResult.UNREACHABLE)
    set_up_tunnel(testbed)
    with transcript.step("through the tunnel the aggregated API is available"):
        transcript.saw(wait_for_availability(stage, "True", "Passed"))
        transcript.shows(call=CallResult.ALLOWED)
    with transcript.step("kubectl get greetings"):
        for line in testbed.wait("greetings", lambda: greetings(stage), SECONDS):
            transcript.saw(line)
    with transcript.step("the pod counts its calls"):
        _show_calls(stage, service.node)


def wait_for_availability(testbed: KubernetesTestbed, status: str, reason: str) -> str:
    def look() -> str:
        condition = _availability(testbed)
        said = f"{condition.get('reason')}: {condition.get('message')}"
        if (condition.get("status"), condition.get("reason")) != (status, reason):
            raise NotYet(f"Available is {condition.get('status')}, {said}")
        return f"Available={status}, {said}"

    return testbed.wait(f"{API_SERVICE} to be Available={status}", look, SECONDS)


def _availability(testbed: KubernetesTestbed) -> dict[str, Any]:
    shown = testbed.kubectl("get", "apiservice", API_SERVICE, "-o=json")
    if shown.exit_code != 0:
        raise NotYet(_last_words(shown))
    conditions = json.loads(shown.text).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Available"), {})


def greetings(testbed: KubernetesTestbed) -> list[str]:
    shown = testbed.kubectl("get", "greetings")
    if shown.exit_code != 0:
        # kube-apiserver adds the kind to its discovery a moment after it is available.
        raise NotYet(_last_words(shown))
    return [line.rstrip() for line in shown.text.splitlines()]


LETTER: Final = "first"
ANSWER: Final = "second"


def run_conversion_webhook(testbed: Testbed) -> None:
    stage = real(testbed)
    transcript = testbed.transcript
    service = prepare(stage)
    with transcript.step("a custom resource that is stored as v1 and also served as v2"):
        stage.apply(service.letters)
        transcript.saw(testbed.wait("a stored letter", lambda: _store(stage), SECONDS))
    with transcript.step("without the tunnel reading it as v2 fails"):
        transcript.saw(testbed.wait("a conversion that fails", lambda: _refusal(stage), SECONDS))
        transcript.shows(call=CallResult.UNREACHABLE)
    set_up_tunnel(testbed)
    with transcript.step("through the tunnel reading it as v2 succeeds"):
        for line in testbed.wait("the letter as v2", lambda: _read_letter(stage, "v2", LETTER), SECONDS):
            transcript.saw(line)
        transcript.saw(f"{CONVERTED_BY}: {_converted_by(stage)}")
        transcript.shows(call=CallResult.ALLOWED)
    with transcript.step("an object written as v2 is stored as v1"):
        stage.apply(_answer())
        for line in testbed.wait("the answer as v1", lambda: _read_letter(stage, "v1", ANSWER), SECONDS):
            transcript.saw(line)
    with transcript.step("the pod counts its conversions"):
        _show_calls(stage, service.node)


def _store(testbed: KubernetesTestbed) -> str:
    """Store a letter as v1, which needs no conversion."""
    shown = testbed.kubectl("create", "-f", "-", stdin=letter(LETTER, "hello, world"))
    text = " ".join((shown.text + shown.stderr.decode(errors="replace")).split())
    if shown.exit_code != 0 and "already exists" not in text:
        raise NotYet(text)
    return text


def _refusal(testbed: KubernetesTestbed) -> str:
    shown = testbed.kubectl("-n", NAMESPACE, "get", f"letters.v2.{LETTER_GROUP}", LETTER)
    text = _last_words(shown)
    if shown.exit_code == 0 or "conversion webhook" not in text:
        raise NotYet(text or "reading it succeeded")
    return text


def _read_letter(testbed: KubernetesTestbed, version: str, name: str) -> list[str]:
    shown = testbed.kubectl("-n", NAMESPACE, "get", f"letters.{version}.{LETTER_GROUP}", name)
    if shown.exit_code != 0:
        raise NotYet(_last_words(shown))
    return [line.rstrip() for line in shown.text.splitlines()]


def _converted_by(testbed: KubernetesTestbed) -> str:
    shown = testbed.kubectl("-n", NAMESPACE, "get", f"letters.v2.{LETTER_GROUP}", LETTER, "-o=json").check()
    return str(json.loads(shown.text)["metadata"]["annotations"][CONVERTED_BY])


def _answer() -> dict[str, object]:
    written = letter(ANSWER, "")
    return {**written, "apiVersion": f"{LETTER_GROUP}/v2", "spec": {"greeting": "good night", "name": "moon"}}


SCENARIOS: Final = (
    Scenario(
        "aggregated-api", "an APIService in a pod: unavailable without the tunnel, then available", run_aggregated_api
    ),
    Scenario(
        "conversion-webhook",
        "a CRD with a conversion webhook in a pod: fails without the tunnel, then works",
        run_conversion_webhook,
    ),
)
