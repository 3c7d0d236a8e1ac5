"""The network of the far rows: `umbilical-relay` between server and agent, or alone as the limit."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench_load import Running
from bench_processes import bench_cpu_seconds, cpu_seconds, machine_cpu_seconds
from bench_rows import RELAY, Cpu, Pair
from bench_tunnel import Carrier, Pki, RunningTunnel, TunnelPrograms, free_port

KIB: Final = 1024


@dataclass(frozen=True)
class Network:
    """A round trip; and a rate with its queue, both 0 without a limit."""

    round_trip_ms: float
    bytes_per_second: int = 0
    queue_bytes: int = 0

    def flags(self) -> list[str]:
        limit = [f"--rate={self.bytes_per_second}", f"--queue-bytes={self.queue_bytes}"]
        return [f"--round-trip={self.round_trip_ms}ms", *(limit if self.bytes_per_second else [])]


def slow_link(round_trip_ms: float) -> Network:
    """A link of 2 MB/s whose queue is one bandwidth-delay product and 64 KiB."""
    rate = 2_000_000
    return Network(round_trip_ms, rate, int(rate * round_trip_ms / 1e3) + 64 * KIB)


class NetworkRelay:
    """One relay process; leaving the block ends it."""

    def __init__(self, program: Path, network: Network, port: int, target: int) -> None:
        addresses = [f"--listen=127.0.0.1:{port}", f"--target=127.0.0.1:{target}"]
        self.port = port
        self._command = [str(program), *addresses, *network.flags()]

    def __enter__(self) -> "NetworkRelay":
        self._running = Running(self._command)
        try:
            self._running.line()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    @property
    def pid(self) -> int:
        return self._running.pid

    def stall(self, seconds: float) -> None:
        """Stop the link for so long; returns at once."""
        self._running.ask(f"stall {seconds}s")
        if json.loads(self._running.line()) != {"stalled_seconds": seconds}:
            raise OSError(f"the relay did not stall for {seconds} s")


class FarTunnel(RunningTunnel):
    """A pair whose agent reaches the server through a relay."""

    def __init__(
        self, network: Network, relay: Path, pair: Pair, programs: dict[str, TunnelPrograms], pki: Pki, folder: Path
    ) -> None:
        super().__init__(pair, "http-connect", programs, pki, folder)
        self.relay = NetworkRelay(relay, network, free_port(), self.agent_port)

    def _begin(self) -> None:
        self._cleanup.enter_context(self.relay)
        super()._begin()

    def _agent_flags(self) -> list[str]:
        # Of a flag that is given twice, the last one counts.
        return [*super()._agent_flags(), f"--proxy-server-port={self.relay.port}"]

    def cpu(self, held: Iterable[int] = ()) -> Cpu:
        return super().cpu([*held, self.relay.pid])


class RelayAlone(Carrier):
    """The relay between generator and endpoint: what the network itself passes. Its CPU counts as a server's."""

    def __init__(self, network: Network, relay: Path, folder: Path) -> None:
        super().__init__(RELAY, folder)
        self._endpoint = free_port()
        self._relay = NetworkRelay(relay, network, free_port(), self._endpoint)

    @property
    def entrance(self) -> list[str]:
        return ["--mode=direct", f"--proxy=127.0.0.1:{self._relay.port}", f"--listen=127.0.0.1:{self._endpoint}"]

    def _begin(self) -> None:
        self._cleanup.enter_context(self._relay)

    def cpu(self, held: Iterable[int] = ()) -> Cpu:
        bench = bench_cpu_seconds() + sum(map(cpu_seconds, held))
        return Cpu(cpu_seconds(self._relay.pid), 0.0, bench, machine_cpu_seconds())
