"""Measures the cost of choosing an agent, with 1, 20 and 200 agents (docs/decisions/0015).

`python tools/choice_cost.py`; set PYTHONPATH to the `src` of a compiled tree to measure that one. The minimum of many
rounds is reported, because other load on the machine only adds time.
"""

import random
import time
from typing import Final, cast

from umbilical.konnectivity import routing
from umbilical.konnectivity.links import AgentLink, Tunnel, TunnelClient
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentRouter

NO_CLIENT: Final = cast(TunnelClient, object())

SHAPES: Final = ((1, 0), (20, 1_000), (200, 10_000))
"""Numbers of agents and of idle tunnels."""
CASES: Final = ((("default",), "web.svc:443"), (("destHost", "default"), "web.svc:443"), (("cidr",), "10.0.3.4:443"))
ROUNDS: Final = 40
DIALS: Final = 2_000


def crowded_yard(agents: int, tunnels: int, strategies: tuple[str, ...]) -> AgentRouter:
    router = AgentRouter(strategies)
    links = [AgentLink(number, f"a{number}", _identifiers(number)) for number in range(agents)]
    for number in range(tunnels):
        link = links[number % agents]
        link.connections[number] = Tunnel(NO_CLIENT, number, "x:1", 0.0)
    for link in links:
        router.add(link)
    return router


def _identifiers(number: int) -> AgentIdentifiers:
    return AgentIdentifiers(
        ipv4=(f"10.0.0.{number}",), host=(f"node{number}",), cidr=(f"10.{number}.0.0/16", "10.0.0.0/8")
    )


def choice_seconds(router: AgentRouter, address: str, draws: list[int]) -> float:
    start = time.perf_counter()
    for draw in draws:
        router.choose(address, draw)
    return (time.perf_counter() - start) / len(draws)


def dial_seconds(router: AgentRouter, address: str, draws: list[int]) -> float:
    """Measure a choice together with the updates of the agent's load."""
    tunnel = Tunnel(NO_CLIENT, -1, address, 0.0)
    start = time.perf_counter()
    for draw in draws:
        link = router.choose(address, draw)
        assert link is not None
        link.pending[-1] = tunnel
        link.weigh()
        del link.pending[-1]
        link.weigh()
    return (time.perf_counter() - start) / len(draws)


def main() -> None:
    print(f"{routing.__file__}, minimum of {ROUNDS} rounds, in microseconds")
    print("strategies          agents  tunnels  choose  choose, load up, load down")
    draws = [random.getrandbits(30) for _ in range(DIALS)]
    for strategies, address in CASES:
        for agents, tunnels in SHAPES:
            router = crowded_yard(agents, tunnels, strategies)
            choice = min(choice_seconds(router, address, draws) for _ in range(ROUNDS)) * 1e6
            dial = min(dial_seconds(router, address, draws) for _ in range(ROUNDS)) * 1e6
            print(f"{','.join(strategies):18}  {agents:6}  {tunnels:7}  {choice:6.2f}  {dial:6.2f}")


if __name__ == "__main__":
    main()
