"""The type of a scenario, and all scenarios by name, in the order in which `lab list` shows them.

A scenario's module is imported when the scenario is needed.
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
    """Removes the tunnel; skipped with --keep."""
    options: ScenarioOptions = field(default_factory=lambda: ScenarioOptions(Shape.OPENSHIFT))
    family: Family = Family.IPV4
    runners: tuple[RunnerKind, ...] = ALL_RUNNERS
    """The first is the default."""
    has_stand_in: bool = False
    """Whether it can run without Kubernetes."""
    programs: tuple[str, ...] = ()
    """Programs that it runs besides those of Kubernetes."""
    system_programs: Mapping[str, str] = field(default_factory=dict)
    """Programs of this machine that the scenario needs -> their packages."""
    masters: int = 3
    workers: int = 2
    plan: Callable[[], Topology] | None = None
    """Returns the topology, if it is not the usual one."""
    needs_image: bool = False
    """Whether it runs programs that only the built image has."""


def hint(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, or list all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known names: {', '.join(names)}"


def load(package: str, modules: Mapping[str, str], things: str, name: str) -> Any:
    """Import the module of that name and return the item of that name from its tuple `things`."""
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
    "dual-stack": "dual_stack",
    "patched-ignition": "patched_ignition",
    "ha": "ha",
    "upgrade": "upgrade",
    "hosted": "hosted",
    "hosted-pods": "hosted_pods",
}


def names() -> list[str]:
    return list(_MODULES)


def find(name: str) -> Scenario:
    """Load a scenario. Raises LabError: the name is unknown (UMB852)."""
    if name not in _MODULES:
        raise LabError("UMB852", f"scenario {name} was not found", hint(name, _MODULES), "umbilical lab list")
    scenario = load(__package__, _MODULES, "SCENARIOS", name)
    assert isinstance(scenario, Scenario)
    return scenario
