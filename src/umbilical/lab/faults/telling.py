"""Faults as steps of a story: break, see, recognise, mend."""

from umbilical.lab.faults import registry
from umbilical.lab.faults.fault import Fault
from umbilical.lab.faults.repair import break_fault, broken_faults, mend_fault
from umbilical.lab.scenarios import webhook_through_tunnel
from umbilical.lab.scene import Scene
from umbilical.lab.story import Call


def tell_fault(scene: Scene, name: str) -> None:
    """Bring everything up, break one thing, and mend it."""
    fault = registry.find(name)
    webhook_through_tunnel.set_stage(scene)
    webhook_through_tunnel.lay_tunnel(scene)
    with scene.story.step("through the tunnel the webhook allows"):
        scene.story.saw(scene.wait_for(Call.ALLOWED, "allow").text)
        scene.story.shows(call=Call.ALLOWED)
    tell_break(scene, fault)
    tell_mend(scene, name)


def tell_break(scene: Scene, fault: Fault) -> None:
    story = scene.story
    with story.step(f"{fault.name}: {fault.summary}"):
        story.saw(f"a user would see: {fault.seen}")
        broken = break_fault(scene, fault)
        if broken.verdict is not None:
            story.saw(f"the call is {broken.verdict.call.value}: {broken.verdict.text}")
            story.shows(call=broken.verdict.call)
        elif fault.stops_calls:
            story.saw("a call hangs, and is not over yet")
            story.shows(call=Call.UNREACHABLE)
        story.saw(f"recognised by {fault.code}: {broken.line}")


def tell_mend(scene: Scene, name: str) -> None:
    story = scene.story
    with story.step(f"{name} is mended"):
        verdict = mend_fault(scene, name)
        still = broken_faults(scene.lab)
        story.saw(f"the call is {verdict.call.value}: {verdict.text}")
        if still:
            story.saw(f"still broken: {', '.join(still)}")
        story.shows(call=verdict.call)
