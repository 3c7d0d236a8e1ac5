"""Inject faults in an order that a seed determines: two at a time, on two nodes, all kinds before one is repeated.

After each pair it waits until the testbed is whole again. Until then tunnels through the targets may fail, and no
others.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.testbed import SILENCE_SECONDS, WHOLE_SECONDS, ChaosProgram, ChaosTestbed
from tests.support.labs import wait_until

from umbilical.lab import nft
from umbilical.lab.network import MACHINE_LINK

RULES: Final = "chaos"
LOST_PERCENT: Final = (5, 10, 25)
# Short enough that peers notice only a pause.
SHORT_SECONDS: Final = (0.2, 1.5)
# Long enough that both sides of a connection consider the peer dead.
LONG_SECONDS: Final = SILENCE_SECONDS + 2.0
CALM_SECONDS: Final = 1.0


class FaultKind(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    LOSS = "loss"


@dataclass(frozen=True)
class FaultSpec:
    kind: FaultKind
    role: str
    """Target: a server or an agent, or the link of its node."""
    is_long: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.role}{', long' if self.is_long else ''}"


@dataclass
class InjectedFault:
    """One fault and the time of its effects, by the machine's monotonic clock."""

    spec: FaultSpec
    program: ChaosProgram
    began: float
    ended: float = float("inf")

    @property
    def target(self) -> str:
        """The name of the program, or of the node for faults of its link."""
        return self.program.name if self.spec.kind in (FaultKind.KILL, FaultKind.PAUSE) else self.program.node

    def overlaps(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


def fault_pairs(draw: random.Random) -> Iterator[tuple[FaultSpec, FaultSpec]]:
    """Return every kind for both roles, in pairs, with one pair of long faults at a random position."""
    specs = [FaultSpec(kind, role) for kind in FaultKind for role in ("server", "agent")]
    draw.shuffle(specs)
    pairs = list(zip(specs[::2], specs[1::2], strict=True))
    roles = draw.sample(("server", "agent"), 2)
    pairs.insert(
        draw.randrange(len(pairs) + 1),
        (FaultSpec(FaultKind.PAUSE, roles[0], True), FaultSpec(FaultKind.CUT, roles[1], True)),
    )
    return iter(pairs)


class FaultInjector:
    def __init__(self, testbed: ChaosTestbed, seed: int) -> None:
        self.faults: list[InjectedFault] = []
        self._testbed = testbed
        self._draw = random.Random(seed)

    def inject_all(self) -> None:
        for specs in fault_pairs(self._draw):
            self._inject_pair(specs)
            time.sleep(CALM_SECONDS)

    def _inject_pair(self, specs: tuple[FaultSpec, FaultSpec]) -> None:
        active: list[tuple[float, InjectedFault]] = []
        for spec in specs:
            fault = InjectedFault(
                spec, self._choose_target(spec, {other.program.node for _, other in active}), time.monotonic()
            )
            self.faults.append(fault)
            print(f"chaos: {spec}: {fault.target}", flush=True)
            self._inject(fault)
            active.append((time.monotonic() + self._duration(spec), fault))
        for until, fault in sorted(active, key=lambda item: item[0]):
            time.sleep(max(0.0, until - time.monotonic()))
            self._remove(fault)
        wait_until(self._testbed.is_whole, WHOLE_SECONDS)
        for _, fault in active:
            fault.ended = time.monotonic()

    def _choose_target(self, spec: FaultSpec, taken: set[str]) -> ChaosProgram:
        programs = self._testbed.servers if spec.role == "server" else self._testbed.agents
        return self._draw.choice([program for program in programs if program.node not in taken])

    def _duration(self, spec: FaultSpec) -> float:
        return LONG_SECONDS if spec.is_long else self._draw.uniform(*SHORT_SECONDS)

    def _inject(self, fault: InjectedFault) -> None:
        testbed, program = self._testbed, fault.program
        match fault.spec.kind:
            case FaultKind.KILL:
                testbed.kill(program)
            case FaultKind.PAUSE:
                testbed.signal(program, "STOP")
            case FaultKind.CUT:
                testbed.lab.set_link(program.node, False)
            case FaultKind.LOSS:
                rules = nft.lose_at_random(self._draw.choice(LOST_PERCENT), MACHINE_LINK)
                testbed.lab.add_rules(program.node, RULES, rules)

    def _remove(self, fault: InjectedFault) -> None:
        testbed, program = self._testbed, fault.program
        match fault.spec.kind:
            case FaultKind.KILL:
                testbed.start_program(program)
            case FaultKind.PAUSE:
                testbed.signal(program, "CONT")
            case FaultKind.CUT:
                testbed.lab.set_link(program.node, True)
            case FaultKind.LOSS:
                testbed.lab.remove_rules(program.node, RULES)
