"""One tunnel of a run: what it is meant to do, what its two ends saw, and whether that is right."""

from enum import Enum
from random import Random
from typing import Final, NamedTuple

from tests.simulation.network import Network
from tests.simulation.sockets import SimSocket, Target
from tests.simulation.wire import EAGER, Pace, Wire


class Ending(Enum):
    ENDPOINT = "the endpoint closes when it has everything"
    CLIENT = "the client closes when it has everything"
    HALF = "the client ends its side, then the endpoint answers"
    LEAVE = "the client leaves in the middle"
    REFUSED = "nobody listens"
    TIMEOUT = "the endpoint does not answer the dial"
    CANCEL = "the client leaves before the dial is answered"


TRANSFERS: Final = (Ending.ENDPOINT, Ending.CLIENT, Ending.HALF)


class TunnelPlan(NamedTuple):
    number: int
    ending: Ending
    up_bytes: int
    down_bytes: int
    starts_after: float
    leaves_after: float = 0.0
    parts: int = 1
    """In how many pieces each end writes."""
    early: bool = False
    """The client sends its first bytes with its request."""
    client_pace: Pace = EAGER
    endpoint_pace: Pace = EAGER


class Arrivals:
    """Compares what arrives with what was sent, byte by byte."""

    def __init__(self, expected: bytes) -> None:
        self._expected: Final = expected
        self.count = 0
        self.differs_at = -1

    def take(self, octets: bytes) -> None:
        end = self.count + len(octets)
        if self.differs_at < 0 and octets != self._expected[self.count : end]:
            self.differs_at = self.count
        self.count = end

    def is_complete(self) -> bool:
        return self.differs_at < 0 and self.count == len(self._expected)


class TunnelRun:
    def __init__(self, plan: TunnelPlan, network: Network) -> None:
        self.plan: Final = plan
        self.network: Final = network
        random = Random(network.seed * 7_919 + plan.number)
        self.up: Final = random.randbytes(plan.up_bytes)
        self.down: Final = random.randbytes(plan.down_bytes)
        self.random: Final = random
        self.target: Final[Target] = (f"10.2.0.{plan.number % 250 + 1}", 8_000 + plan.number)
        self.at_client: Final = Arrivals(self.down)
        self.connections: Final[list[EndpointEnd]] = []
        self.opened = False
        self.refusal = ""
        """What the client was told instead of `open`."""
        self.client_end = ""
        """How the client's side ended; empty while it goes on."""
        self.hit = ""
        """The fault that touched this tunnel: it may fail then, but must come to an end, without a wrong byte."""

    def dialled(self, sock: SimSocket) -> None:
        self.connections.append(EndpointEnd(self, sock))

    def is_over(self) -> bool:
        return bool(self.client_end) and all(end.end for end in self.connections)

    def processes(self) -> set[str]:
        return {end.process for end in self.connections}

    def faults(self) -> list[str]:
        """What is wrong with this tunnel now that the run is over."""
        found = [text for text in (self._wrong_bytes(), self._unfinished()) if text]
        if not found and not self.hit:
            text = self._unmet()
            found = [text] if text else []
        return [f"tunnel {self.plan.number} ({self.plan.ending.name}): {text}" for text in found]

    def _wrong_bytes(self) -> str:
        if self.at_client.differs_at >= 0:
            return f"wrong byte at the client after {self.at_client.differs_at}"
        wrong = [end.arrivals.differs_at for end in self.connections if end.arrivals.differs_at >= 0]
        return f"wrong byte at the endpoint after {wrong[0]}" if wrong else ""

    def _unfinished(self) -> str:
        if not self.client_end:
            return f"hangs at the client, {self.at_client.count} of {len(self.down)} bytes, opened={self.opened}"
        if not self.is_over():
            return f"hangs at the endpoint, the client's side is over: {self.client_end}"
        return ""

    def _unmet(self) -> str:
        """A tunnel that no fault touched must have done what was planned."""
        ending = self.plan.ending
        if ending in (Ending.REFUSED, Ending.TIMEOUT):
            return "" if self.refusal else f"the client got no refusal: {self.client_end}"
        if ending in (Ending.LEAVE, Ending.CANCEL):
            return ""
        if self.refusal:
            return f"refused: {self.refusal}"
        if not self.at_client.is_complete():
            return f"client got {self.at_client.count} of {len(self.down)} bytes: {self.client_end}"
        whole = [end for end in self.connections if end.arrivals.is_complete()]
        if not whole:
            got = [(end.arrivals.count, end.end) for end in self.connections]
            return f"endpoint got {got} of {len(self.up)} bytes; client: {self.client_end}"
        return ""


class EndpointEnd:
    """One connection at the endpoint; a dial that went to two agents leads to two."""

    def __init__(self, run: TunnelRun, sock: SimSocket) -> None:
        assert sock.peer is not None
        self.process: Final = sock.peer.process
        self.arrivals: Final = Arrivals(run.up)
        self.end = ""
        self._run: Final = run
        self._plan: Final = run.plan
        self._unsent_parts = 0
        self.wire: Final = Wire(sock, self, run.plan.endpoint_pace)
        if self._plan.ending is not Ending.HALF:
            self._send()

    def _send(self) -> None:
        parts = split(self._run.down, self._plan.parts, self._run.random)
        self._unsent_parts = len(parts)
        for number, part in enumerate(parts):
            self._run.network.after(number * 0.02, self._send_part, part)

    def _send_part(self, part: bytes) -> None:
        self._unsent_parts -= 1
        self.wire.write(part)
        self._close_if_done()

    def received(self, octets: bytes) -> None:
        self.arrivals.take(octets)
        self._close_if_done()

    def _close_if_done(self) -> None:
        plan = self._plan
        if plan.ending is Ending.ENDPOINT and self.arrivals.count >= plan.up_bytes and not self._unsent_parts:
            self.wire.end()
            self._over("closed")

    def ended(self) -> None:
        if self._plan.ending is Ending.HALF and not self.end and self.arrivals.is_complete():
            self._over("answered")
            self._send()
            self._run.network.after(len(self._run.down) and self._plan.parts * 0.02, self.wire.end)
            return
        self._over("the tunnel closed")
        self.wire.end()
        self._run.network.after(0.5, self.wire.close)

    def failed(self, reason: str) -> None:
        self._over(reason)

    def _over(self, how: str) -> None:
        if not self.end:
            self.end = how


def split(octets: bytes, parts: int, random: Random) -> list[bytes]:
    cuts = sorted(random.randrange(len(octets) + 1) for _ in range(parts - 1))
    return [octets[start:end] for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
