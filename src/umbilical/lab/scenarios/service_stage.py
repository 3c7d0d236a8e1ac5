"""The stage of stories in which the lab's service is something else than an admission webhook."""

import json
from typing import Final

from umbilical.lab import objects
from umbilical.lab.kubernetes_scene import KubernetesScene
from umbilical.lab.scenarios.webhook_through_tunnel import start_cluster
from umbilical.lab.scene import Scene

SECONDS: Final = 120.0


def real(scene: Scene) -> KubernetesScene:
    """Narrow the scene: a scenario without a stand-in is told in no other."""
    assert isinstance(scene, KubernetesScene), "a scenario with has_stand_in=False is never cast with one"
    return scene


def set_stage(scene: KubernetesScene) -> objects.Service:
    """Bring up everything but the tunnel; kube-apiserver asks nothing of the service yet."""
    story = scene.story
    start_cluster(scene)
    with story.step("a service in a pod"):
        service = objects.make_service(scene.lab.topology)
        scene.apply(*service.objects)
        address = scene.wait("the service's endpoint", scene.endpoint, SECONDS)
        story.saw(f"{objects.NAMESPACE}/{objects.NAME} on {service.node}, endpoint {address}")
        story.shows(webhook=service.node)
    return service


def calls(scene: KubernetesScene, node: str) -> dict[str, int]:
    """Ask the service itself, from its own node, how often it was called on which path."""
    address = scene.endpoint()
    host = f"[{address}]" if ":" in address else address
    shown = scene.fetch(node, f"https://{host}:{objects.PORT}/calls")
    return {} if shown is None else {str(path): int(count) for path, count in json.loads(shown).items()}
