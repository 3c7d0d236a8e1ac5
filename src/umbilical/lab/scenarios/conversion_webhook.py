"""A custom resource whose versions a pod converts: without the tunnel it is stored, and cannot be read as the other."""

import json
from typing import Final

from umbilical.lab.kubernetes_scene import KubernetesScene
from umbilical.lab.objects import LETTERS, NAMESPACE, letter
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.service_stage import SECONDS, calls, real, set_stage
from umbilical.lab.scenarios.webhook_through_tunnel import lay_tunnel
from umbilical.lab.scene import Scene
from umbilical.lab.service_answers import CONVERTED_BY, LETTER_GROUP
from umbilical.lab.story import Call
from umbilical.lab.waiting import NotYet

LETTER: Final = "first"
ANSWER: Final = "second"


def tell(scene: Scene) -> None:
    stage = real(scene)
    story = scene.story
    service = set_stage(stage)
    with story.step("a kind that is stored as v1 and served as v2 too"):
        stage.apply(service.letters)
        story.saw(scene.wait("a stored letter", lambda: _store(stage), SECONDS))
    with story.step("without the tunnel it cannot be read as v2"):
        story.saw(scene.wait("a conversion that fails", lambda: _refusal(stage), SECONDS))
        story.shows(call=Call.UNREACHABLE)
    lay_tunnel(scene)
    with story.step("through the tunnel it can"):
        for line in scene.wait("the letter as v2", lambda: _read(stage, "v2", LETTER), SECONDS):
            story.saw(line)
        story.saw(f"{CONVERTED_BY}: {_converted_by(stage)}")
        story.shows(call=Call.ALLOWED)
    with story.step("and what is written as v2 is stored as v1"):
        stage.apply(_answer())
        for line in scene.wait("the answer as v1", lambda: _read(stage, "v1", ANSWER), SECONDS):
            story.saw(line)
    with story.step("the pod counts its conversions"):
        counted = calls(stage, service.node)
        for path, count in counted.items():
            story.saw(f"{path}: {count}")
        story.figures["calls"] = str(sum(counted.values()))
        story.figures["bytes over the agents' port"] = f"{scene.tunnel_bytes():,}"


def _store(scene: KubernetesScene) -> str:
    """Store a letter as v1; nothing has to be converted for that."""
    shown = scene.kubectl("create", "-f", "-", stdin=letter(LETTER, "hello, world"))
    text = " ".join((shown.text + shown.stderr.decode(errors="replace")).split())
    if shown.exit_code != 0 and "already exists" not in text:
        raise NotYet(text)
    return text


def _refusal(scene: KubernetesScene) -> str:
    shown = scene.kubectl("-n", NAMESPACE, "get", f"letters.v2.{LETTER_GROUP}", LETTER)
    text = " ".join(shown.stderr.decode(errors="replace").split())
    if shown.exit_code == 0 or "conversion webhook" not in text:
        raise NotYet(text or "it was read")
    return text


def _read(scene: KubernetesScene, version: str, name: str) -> list[str]:
    shown = scene.kubectl("-n", NAMESPACE, "get", f"letters.{version}.{LETTER_GROUP}", name)
    if shown.exit_code != 0:
        raise NotYet(" ".join(shown.stderr.decode(errors="replace").split()))
    return [line.rstrip() for line in shown.text.splitlines()]


def _converted_by(scene: KubernetesScene) -> str:
    shown = scene.kubectl("-n", NAMESPACE, "get", f"letters.v2.{LETTER_GROUP}", LETTER, "-o=json").check()
    return str(json.loads(shown.text)["metadata"]["annotations"][CONVERTED_BY])


def _answer() -> dict[str, object]:
    written = letter(ANSWER, "")
    return {**written, "apiVersion": f"{LETTER_GROUP}/v2", "spec": {"greeting": "good night", "name": "moon"}}


SCENARIOS: Final = (
    Scenario("conversion-webhook", f"{LETTERS}: versions that a pod converts, unreadable without the tunnel", tell),
)
