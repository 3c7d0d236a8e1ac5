"""What a scenario is, and all scenarios by name, in the order in which they are listed. Each module is loaded when
it is asked for. A wrong name is answered with the nearest one.
"""

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from umbilical.bootstrap.spec import Shape
from umbilical.fault import LabError
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import Testbed
from umbilical.lab.topology import Family, Topology
from umbilical.lab.tunnel_parts import ScenarioOptions

ALL_RUNNERS = (RunnerKind.PROCESS, RunnerKind.KUBELET)


@dataclass(frozen=True)
class Scenario:
    name: str
    summary: str
    run: Callable[[Testbed], None]
    end: Callable[[Testbed], None] | None = None
    """The cut and what comes after it; left out where the lab is kept, so that there is a tunnel to look at."""
    options: ScenarioOptions = field(default_factory=lambda: ScenarioOptions(Shape.OPENSHIFT))
    family: Family = Family.IPV4
    runners: tuple[RunnerKind, ...] = ALL_RUNNERS
    """The first is the one that is taken when nobody asks for another."""
    has_stand_in: bool = False
    """Whether it can be told without Kubernetes."""
    programs: tuple[str, ...] = ()
    """Beyond Kubernetes' own."""
    system_programs: Mapping[str, str] = field(default_factory=dict)
    """Programs of this machine that only this scenario runs -> the package that brings each."""
    masters: int = 3
    workers: int = 2
    plan: Callable[[], Topology] | None = None
    """Networks of its own, in place of the usual ones."""


def hint(name: str, known: Iterable[str]) -> str:
    """Say what a wrong name may have meant, or all that there is."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"


def load(package: str, modules: Mapping[str, str], things: str, name: str) -> Any:
    """Load the thing of that name from the module that the table gives; there it stands in the tuple `things`."""
    module = importlib.import_module(f"{package}.{modules[name]}")
    return next(thing for thing in getattr(module, things) if thing.name == name)


_MODULES: Final = {
    "webhook-through-tunnel": "webhook_through_tunnel",
    "aggregated-api": "service_scenarios",
    "conversion-webhook": "service_scenarios",
    "kubelet-traffic": "kubelet_traffic",
    "seed-shape": "webhook_through_tunnel",
    "upstream-mix": "webhook_through_tunnel",
    "ipv6": "webhook_through_tunnel",
    "patched-ignition": "patched_ignition",
    "ha": "ha",
    "hosted": "hosted",
}


def names() -> list[str]:
    return list(_MODULES)


def find(name: str) -> Scenario:
    """Load a scenario. Raises LabError: there is none of that name."""
    if name not in _MODULES:
        raise LabError("UMB852", f"there is no scenario {name}", hint(name, _MODULES), "umbilical lab list")
    scenario = load(__package__, _MODULES, "SCENARIOS", name)
    assert isinstance(scenario, Scenario)
    return scenario
