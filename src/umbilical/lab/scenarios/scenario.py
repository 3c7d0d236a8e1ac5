"""What a scenario is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from umbilical.bootstrap.spec import Shape
from umbilical.lab.cast import Cast
from umbilical.lab.runner import RunnerKind
from umbilical.lab.scene import Scene
from umbilical.lab.topology import Family, Topology

ALL_RUNNERS = (RunnerKind.PROCESS, RunnerKind.KUBELET)


@dataclass(frozen=True)
class Scenario:
    name: str
    summary: str
    tell: Callable[[Scene], None]
    end: Callable[[Scene], None] | None = None
    """The cut and what comes after it; left out where the lab is kept, so that there is a tunnel to look at."""
    cast: Cast = field(default_factory=lambda: Cast(Shape.OPENSHIFT))
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
