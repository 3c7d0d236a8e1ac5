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
    """Whose log tells of a breakage."""

    SERVER = "server"
    AGENTS = "agents"
    COMMAND = "command"
    """Nobody's: a command says it, which `Breakage.ask` runs."""


@dataclass(frozen=True)
class Breakage:
    name: str
    summary: str
    """One line for `lab list`."""
    seen: str
    """What a user would see, and where."""
    code: str
    """By which the product says it."""
    speaker: Speaker
    break_: Callable[[Testbed], Memory]
    """Make it. What it changes is undone by `mend`, also when this was interrupted half way."""
    mend: Callable[[Testbed, Memory], None]
    """Take it back; doing it twice is fine."""
    ask: Callable[[Testbed], str] | None = None
    """The command whose output carries the code; for Speaker.COMMAND."""
    needs_traffic: bool = False
    """One call does not meet it: many are made until the line is there."""
    stops_calls: bool = True
    """Whether calls to the webhook fail meanwhile."""
    seconds: float = 40.0
    """How long the line may take."""


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
    """Load a breakage. Raises LabError: there is none of that name."""
    if name not in _MODULES:
        raise LabError("UMB860", f"there is no breakage {name}", scenario.hint(name, _MODULES), "umbilical lab list")
    breakage = scenario.load(__package__, _MODULES, "BREAKAGES", name)
    assert isinstance(breakage, Breakage)
    return breakage
