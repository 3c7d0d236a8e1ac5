"""The type of a breakage, and all breakages by name, in the order in which `lab list` shows them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.lab.scenarios import scenario
from umbilical.lab.testbed import Testbed

Memory = dict[str, Any]
"""What `mend` needs to know, in values that JSON knows. Never a key: it goes into the lab's state file."""


class Speaker(Enum):
    """Which program reports the breakage, in its log or output."""

    SERVER = "server"
    AGENTS = "agents"
    COMMAND = "command"
    """The command that `Breakage.ask` runs."""


@dataclass(frozen=True)
class Breakage:
    name: str
    summary: str
    """One line for `lab list`."""
    seen: str
    """What a user sees, and where."""
    code: str
    """The code with which the product reports it."""
    speaker: Speaker
    break_: Callable[[Testbed], Memory]
    """Make it. `mend` must undo it even after an interrupt in the middle."""
    mend: Callable[[Testbed, Memory], None]
    """Undo it; safe to call twice."""
    ask: Callable[[Testbed], str] | None = None
    """Runs the command whose output has the code; for Speaker.COMMAND."""
    needs_traffic: bool = False
    """Whether many calls are needed until the product reports it."""
    stops_calls: bool = True
    """Whether calls to the webhook fail until it is repaired."""
    seconds: float = 40.0
    """Timeout for the line with the code."""


_MODULES: Final = {
    "agent-kill": "pods",
    "server-kill": "pods",
    "agent-freeze": "pods",
    "link-cut": "networks",
    "port-8091-blocked": "networks",
    "packet-loss": "networks",
    "certificate-expired": "certificates",
    "certificate-from-tomorrow": "certificates",
    "wrong-san": "certificates",
    "wrong-ca": "certificates",
    "stale-socket": "pods",
    "slow-reader": "pods",
    "no-default-route": "networks",
}


def names() -> list[str]:
    return list(_MODULES)


def find(name: str) -> Breakage:
    """Load a breakage. Raises LabError: the name is unknown (UMB860)."""
    if name not in _MODULES:
        raise LabError("UMB860", f"breakage {name} was not found", scenario.hint(name, _MODULES), "umbilical lab list")
    breakage = scenario.load(__package__, _MODULES, "BREAKAGES", name)
    assert isinstance(breakage, Breakage)
    return breakage
