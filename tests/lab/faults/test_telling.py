import pytest
from tests.support.fault_scene import MemoryScene, fault

from umbilical.lab.faults import calls, registry, telling
from umbilical.lab.scenarios import webhook_through_tunnel
from umbilical.lab.scene import Verdict
from umbilical.lab.story import Call


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> MemoryScene:
    monkeypatch.setattr(registry, "find", fault)
    return MemoryScene().lay()


def test_a_break_tells_what_is_done_seen_and_said(scene: MemoryScene) -> None:
    scene.verdict = Verdict(Call.UNREACHABLE, "No agent available")
    telling.tell_break(scene, fault())
    (step,) = scene.story.steps
    assert step.title == "agent-kill: it breaks"
    assert step.evidence == [
        "a user would see: nothing works",
        "the call is unreachable: No agent available",
        "recognised by UMB302: bootstrap/konnectivity-server: W1115 UMB302 agent-kill",
    ]
    assert scene.story.picture.call is Call.UNREACHABLE


def test_a_call_that_hangs_is_told_as_such(scene: MemoryScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.Calls, "first", lambda self: None)
    telling.tell_break(scene, fault())
    assert "a call hangs, and is not over yet" in scene.story.steps[0].evidence


def test_a_mend_tells_what_is_still_broken(scene: MemoryScene) -> None:
    telling.tell_break(scene, fault("first"))
    telling.tell_break(scene, fault("second"))
    telling.tell_mend(scene, "second")
    assert scene.story.steps[-1].title == "second is mended"
    assert scene.story.steps[-1].evidence == ["the call is allowed: created", "still broken: first"]


def test_a_story_of_a_fault_begins_with_everything_well_and_ends_so(
    scene: MemoryScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(webhook_through_tunnel, "set_stage", lambda scene: order.append("stage"))
    monkeypatch.setattr(webhook_through_tunnel, "lay_tunnel", lambda scene: order.append("tunnel"))
    telling.tell_fault(scene, "agent-kill")
    assert order == ["stage", "tunnel"]
    assert [step.title for step in scene.story.steps] == [
        "through the tunnel the webhook allows",
        "agent-kill: it breaks",
        "agent-kill is mended",
    ]
    assert scene.story.picture.call is Call.ALLOWED
