"""What happens in a run, drawn from its seed: wire form, frontend, agents, tunnels, and the one fault."""

from random import Random
from typing import Final, NamedTuple

from tests.simulation.tunnels import Ending, TunnelPlan
from tests.simulation.wire import EAGER, Pace

MIB: Final = 1024 * 1024
AGENTS: Final = (3, 4)
TUNNELS: Final = (20, 26)
STARTING_SECONDS: Final = 1.2
FAULTS: Final = (
    "cut", "stall", "split", "jitter", "flood", "raise", "vanish", "exhausted", "silence",
)  # fmt: skip
FORMS: Final = ("streams", "streams", "shared", "upstream", "mixed")
"""One stream for each tunnel, one for all, agents in upstream's way, or some of each."""


class RunPlan(NamedTuple):
    seed: int
    form: str
    agents: tuple[str, ...]
    """The form of each."""
    grpc: bool
    tunnels: tuple[TunnelPlan, ...]
    groups: tuple[int, ...]
    """How many tunnels share each gRPC connection."""
    fault: str
    fault_after: float
    drains: bool
    """One of our agents drains in the middle."""
    stops: bool
    """The server begins a graceful stop while tunnels are open."""


def plan_of(seed: int) -> RunPlan:
    random = Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    form = random.choice(FORMS)
    grpc = random.random() < 0.5
    # Only the sweep for idle tunnels ends that of a client which vanished; only an HTTP CONNECT client may be on TCP.
    grpc = grpc and fault != "vanish"
    count = random.randint(*TUNNELS)
    agents = tuple(_form_of(form, random) for _ in range(random.randint(*AGENTS)))
    half = form == "streams" and not grpc
    return RunPlan(
        seed=seed,
        form=form,
        agents=agents,
        grpc=grpc,
        tunnels=tuple(_tunnels(count, half, random)),
        groups=tuple(_groups(count, random)),
        fault=fault,
        fault_after=random.uniform(0.02, STARTING_SECONDS + 0.3),
        drains=random.random() < 0.2,
        stops=random.random() < 0.25,
    )


def _form_of(form: str, random: Random) -> str:
    return random.choice(("streams", "shared", "upstream")) if form == "mixed" else form


def _groups(count: int, random: Random) -> list[int]:
    groups: list[int] = []
    while count > 0:
        groups.append(min(count, random.choice((1, 1, 3, 6))))
        count -= groups[-1]
    return groups


def _tunnels(count: int, half: bool, random: Random) -> list[TunnelPlan]:
    usual = [Ending.ENDPOINT] * 6 + [Ending.CLIENT] * 6 + ([Ending.HALF] * 5 if half else [])
    rare = [Ending.LEAVE, Ending.LEAVE, Ending.REFUSED, Ending.TIMEOUT, Ending.CANCEL]
    endings = [random.choice(rare) if random.random() < 0.2 else random.choice(usual) for _ in range(count)]
    endings[0] = random.choice(usual)
    shares = [random.choice((0.02, 1.0, 1.0, 2.0, 4.0)) for _ in endings]
    whole = [share for share, ending in zip(shares, endings, strict=True) if ending in usual]
    starts = sorted(random.uniform(0.0, STARTING_SECONDS) for _ in endings)
    plans: list[TunnelPlan] = []
    for number, (ending, share) in enumerate(zip(endings, shares, strict=True)):
        size = int(MIB * share / sum(whole)) + 1
        plans.append(_tunnel(number, ending, size, starts[number], random))
    return plans


def _tunnel(number: int, ending: Ending, size: int, starts_after: float, random: Random) -> TunnelPlan:
    pace = random.random()
    return TunnelPlan(
        number=number,
        ending=ending,
        up_bytes=size + random.randrange(100),
        down_bytes=size + random.randrange(100),
        starts_after=starts_after,
        leaves_after=random.uniform(0.0, 0.3),
        parts=random.choice((1, 2, 4)),
        early=random.random() < 0.2,
        client_pace=_slow(size, random) if pace < 0.1 else EAGER,
        endpoint_pace=_slow(size, random) if pace > 0.9 else EAGER,
    )


def _slow(size: int, random: Random) -> Pace:
    """A reader that rests between reads, or that begins late; neither is stuck by the limits of the server."""
    if random.random() < 0.5:
        return Pace(at_once=max(size // 20, 1_000), rest_seconds=0.05)
    return Pace(first_rest_seconds=3.0)
