"""Breaking and mending with a memory: what is broken is written into the lab's state before it is, and mended last
in, first out, from whatever terminal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.lab.cast import OURS
from umbilical.lab.faults import registry
from umbilical.lab.faults.calls import Calls
from umbilical.lab.faults.fault import Fault, Memory, Speaker
from umbilical.lab.faults.log_watch import LogWatch
from umbilical.lab.faults.pods import server_pid
from umbilical.lab.lab import Lab
from umbilical.lab.scene import Scene, Verdict
from umbilical.lab.story import Call
from umbilical.lab.waiting import NotYet, wait

# Agents that were refused for a while come back with their back-off, 30 s at most.
WELL_SECONDS: Final = 90.0


@dataclass(frozen=True)
class Broken:
    verdict: Verdict | None
    """Of a call to the webhook meanwhile; None where it still hangs, or calls have nothing to do with it."""
    line: str
    """The product's own."""


def broken_faults(lab: Lab) -> list[str]:
    """Return what is broken now, oldest first."""
    faults = lab.faults()
    return sorted(faults, key=lambda name: int(_entry(faults, name).get("number", 0)))


def check(scene: Scene, fault: Fault) -> None:
    """Refuse before anything is touched.

    Raises:
        LabError: it is broken already, or whoever should tell of it is not ours.
    """
    if fault.name in scene.lab.faults():
        why = "it was made before and never mended"
        raise LabError("UMB862", f"{fault.name} is broken already", why, f"umbilical lab mend {fault.name}")
    scene.tunnel  # noqa: B018 - raises where none was laid
    if not scene.lab.faults() and server_pid(scene) is None:
        why = "its server does not run: it was torn down, or never came up"
        raise LabError("UMB862", "there is no tunnel to break", why, "umbilical lab status")
    images = {Speaker.SERVER: scene.cast.server_image, Speaker.AGENTS: scene.cast.agent_image}
    if images.get(fault.speaker, OURS) != OURS:
        why = f"{images[fault.speaker]} does not know our codes"
        remedy = "tell it with our own programs: umbilical lab run --keep webhook-through-tunnel"
        raise LabError("UMB862", f"{fault.name} cannot be recognised in this lab", why, remedy)


def break_fault(scene: Scene, fault: Fault) -> Broken:
    """Make a fault, call the webhook as a user would, and wait until the product says what is wrong.

    Raises:
        LabError: it cannot be made, or the line does not come (UMB861). It is then broken and can be mended.
    """
    check(scene, fault)
    watch = LogWatch(scene, fault.speaker, fault.code)
    _remember(scene.lab, fault.name, {})
    memory = fault.break_(scene)
    _remember(scene.lab, fault.name, memory)
    with Calls(scene, fault, memory) as calls:
        line = observe(scene, fault, watch)
        return Broken(calls.first(), line)


def observe(scene: Scene, fault: Fault, watch: LogWatch) -> str:
    """Wait for the line with the fault's code."""

    def look() -> str:
        found = _asked(scene, fault) if fault.ask is not None else watch.fresh()
        if found is None:
            raise NotYet(f"no new line with {fault.code}")
        return found

    try:
        return wait(f"{fault.code} in the {fault.speaker.value}'s words", look, fault.seconds)
    except LabError as error:
        remedy = f"mend it: umbilical lab mend {fault.name}; and report this"
        raise LabError("UMB861", f"{fault.name} was not recognised", error.why, remedy) from None


def mend_fault(scene: Scene, name: str) -> Verdict:
    """Take a fault back and show that things work again.

    Raises:
        LabError: it is not broken (UMB863), or calls do not work again (UMB864).
    """
    faults = scene.lab.faults()
    if name not in faults:
        known = ", ".join(broken_faults(scene.lab)) or "nothing"
        raise LabError("UMB863", f"{name} is not broken", f"broken is: {known}", "umbilical lab status")
    memory = _entry(faults, name).get("memory", {})
    registry.find(name).mend(scene, memory if isinstance(memory, dict) else {})
    _forget(scene.lab, name)
    return wait_until_well(scene)


def wait_until_well(scene: Scene) -> Verdict:
    """Other faults may still be there; then a call need not come through."""
    if scene.lab.faults():
        return scene.judge("allow")
    try:
        scene.server_socket()
        scene.wait_for_agents()
        return scene.wait_for(Call.ALLOWED, "allow", WELL_SECONDS)
    except LabError as error:
        raise LabError("UMB864", "mended, but not well again", error.why, error.remedy) from None


def _asked(scene: Scene, fault: Fault) -> str | None:
    assert fault.ask is not None
    lines = fault.ask(scene).splitlines()
    return next((line for line in lines if fault.code in line), None)


def _entry(faults: Mapping[str, object], name: str) -> dict[str, Any]:
    entry = faults[name]
    return entry if isinstance(entry, dict) else {}


def _remember(lab: Lab, name: str, memory: Memory) -> None:
    faults = lab.faults()
    number = _entry(faults, name)["number"] if name in faults else 1 + _highest(faults)
    lab.set_faults({**faults, name: {"number": number, "memory": memory}})


def _highest(faults: Mapping[str, object]) -> int:
    return max((int(_entry(faults, name).get("number", 0)) for name in faults), default=0)


def _forget(lab: Lab, name: str) -> None:
    lab.set_faults({key: value for key, value in lab.faults().items() if key != name})
