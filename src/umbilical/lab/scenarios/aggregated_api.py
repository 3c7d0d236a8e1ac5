"""An aggregated API that a pod serves: without the tunnel the bootstrap kube-apiserver calls it unavailable.

kube-apiserver dials the endpoint's address here, as OpenShift's does; a cluster IP would lead nowhere.
"""

import json
from typing import Any, Final

from umbilical.lab.kubernetes_scene import KubernetesScene
from umbilical.lab.objects import API_SERVICE
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.service_stage import SECONDS, calls, real, set_stage
from umbilical.lab.scenarios.webhook_through_tunnel import lay_tunnel
from umbilical.lab.scene import Scene
from umbilical.lab.story import Call
from umbilical.lab.waiting import NotYet


def tell(scene: Scene) -> None:
    stage = real(scene)
    story = scene.story
    service = set_stage(stage)
    with story.step("without the tunnel its API is unavailable"):
        stage.apply(service.api_service)
        # It is "Unknown" or local trouble first; the reason to wait for is the one that a dial gave.
        story.saw(wait_for_availability(stage, "False", "FailedDiscoveryCheck"))
        story.shows(call=Call.UNREACHABLE)
    lay_tunnel(scene)
    with story.step("through the tunnel it is available"):
        story.saw(wait_for_availability(stage, "True", "Passed"))
        story.shows(call=Call.ALLOWED)
    with story.step("kubectl get greetings"):
        for line in scene.wait("greetings", lambda: greetings(stage), SECONDS):
            story.saw(line)
    with story.step("the pod counts who asked"):
        counted = calls(stage, service.node)
        for path, count in counted.items():
            story.saw(f"{path}: {count}")
        story.figures["calls"] = str(sum(counted.values()))
        story.figures["bytes over the agents' port"] = f"{scene.tunnel_bytes():,}"


def wait_for_availability(scene: KubernetesScene, status: str, reason: str) -> str:
    def look() -> str:
        condition = _availability(scene)
        said = f"{condition.get('reason')}: {condition.get('message')}"
        if (condition.get("status"), condition.get("reason")) != (status, reason):
            raise NotYet(f"Available is {condition.get('status')}, {said}")
        return f"Available={status}, {said}"

    return scene.wait(f"{API_SERVICE} to be Available={status}", look, SECONDS)


def _availability(scene: KubernetesScene) -> dict[str, Any]:
    shown = scene.kubectl("get", "apiservice", API_SERVICE, "-o=json")
    if shown.exit_code != 0:
        raise NotYet(" ".join(shown.stderr.decode(errors="replace").split()))
    conditions = json.loads(shown.text).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Available"), {})


def greetings(scene: KubernetesScene) -> list[str]:
    shown = scene.kubectl("get", "greetings")
    if shown.exit_code != 0:
        # kubectl learns of kinds by discovery, which takes kube-apiserver a moment after availability.
        raise NotYet(" ".join(shown.stderr.decode(errors="replace").split()))
    return [line.rstrip() for line in shown.text.splitlines()]


SCENARIOS: Final = (
    Scenario("aggregated-api", "an APIService that a pod serves: unavailable without the tunnel, then answering", tell),
)
