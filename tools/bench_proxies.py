"""Compares our proxies with the usual alternatives, as ratios: `ssh -D` for SOCKS5, tinyproxy for CONNECT.

Ours use a tunnel: three processes, with TLS between two of them. ssh has two processes with its own encryption between
them. tinyproxy is one process without encryption, and shows the cost of a plain proxy.
"""

import argparse
import getpass
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import peers
from bench_compiled import compiled_source
from bench_load import Generator, LoadFailed
from bench_processes import cpu_seconds, memory_megabytes
from bench_rows import OURS, BenchRow, Pair
from bench_tunnel import POLL_SECONDS, READY_SECONDS, Carrier, Pki, RunningTunnel, TunnelPrograms, free_port
from umbilical.host.files import write_file
from umbilical.host.processes import run

PROGRAMS: Final = Path(sys.executable).parent
KEYGEN_SECONDS: Final = 30
ROWS: Final = tuple(
    BenchRow("rate", "", test, count)
    for test, count in (("dial", 1), ("dial", 16), ("echo", 16), ("download", 1), ("download", 8), ("upload", 8))
)
HELD: Final = (100, 1000)
"""Connections that are open while the proxy's memory is read."""
REST_SECONDS: Final = 1.0
REQUESTS_BAR: Final = 0.8
"""Requests per second of the SOCKS5 proxy, to those of `ssh -D`."""
REQUESTED_MB: Final = 30 * 1024 * 1024 / 1e6
"""What HyperShift requests for each of its proxies: 30 MiB."""
Reading = Mapping[str, float]


def accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True


class OurProxy(RunningTunnel):
    """A proxy that uses our server's Unix socket; endpoints are IP addresses, so no names are resolved."""

    def __init__(self, kind: str, pki: Pki, folder: Path, environment: Mapping[str, str]) -> None:
        server, agent = PROGRAMS / "proxy-server", PROGRAMS / "proxy-agent"
        ours = TunnelPrograms(server, agent, logs_to_file=True, environment=environment)
        super().__init__(OURS, "http-connect", {"ours": ours}, pki, folder)
        self._environment = environment
        self._kind = kind
        self._port = free_port()

    @property
    def entrance(self) -> list[str]:
        mode = "socks5" if self._kind == "socks5" else "proxy"
        return [f"--mode={mode}", f"--proxy=127.0.0.1:{self._port}"]

    def _begin(self) -> None:
        super()._begin()
        command: list[str | Path] = [
            *(PROGRAMS / "umbilical", "proxy", self._kind, "--listen", f"127.0.0.1:{self._port}"),
            *("--server", f"unix:{self.socket_path}", "--resolve", "agent"),
        ]
        self._launch("proxy", f"our {self._kind} proxy", command, self._environment)
        self._children["proxy"].wait_ready(lambda: accepts(self._port), READY_SECONDS, POLL_SECONDS)

    def proxy_memory(self) -> dict[str, float]:
        return memory_megabytes(self._children["proxy"].pid)

    def proxy_cpu_seconds(self) -> float:
        return cpu_seconds(self._children["proxy"].pid)


class SshForward(Carrier):
    """sshd on loopback, and `ssh -D` to it, with keys for this run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Pair("ssh", "ssh", "ssh"), folder)
        self._daemon_port, self._port = free_port(), free_port()

    @property
    def entrance(self) -> list[str]:
        return ["--mode=socks5", f"--proxy=127.0.0.1:{self._port}"]

    def _begin(self) -> None:
        folder = self._folder
        for name in ("key", "host"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], KEYGEN_SECONDS)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd as root does not start without this directory
        write_file(folder / "authorized", (folder / "key.pub").read_bytes())
        config = write_file(folder / "sshd_config", self._daemon_config().encode())
        self._launch("server", "sshd", [_found("sshd"), "-D", "-e", "-f", config], {})
        self._children["server"].wait_ready(lambda: accepts(self._daemon_port), READY_SECONDS, POLL_SECONDS)
        self._launch("agent", "ssh -D", self._client(), {})
        self._children["agent"].wait_ready(lambda: accepts(self._port), READY_SECONDS, POLL_SECONDS)

    def _daemon_config(self) -> str:
        folder = self._folder
        return (
            f"ListenAddress 127.0.0.1\nPort {self._daemon_port}\nHostKey {folder / 'host'}\nPidFile none\n"
            f"AuthorizedKeysFile {folder / 'authorized'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\nMaxSessions 1000\nUseDNS no\nLogLevel ERROR\n"
        )

    def _client(self) -> list[str | Path]:
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        flags = [word for option in (*options, "ExitOnForwardFailure=yes") for word in ("-o", option)]
        return [
            *(_found("ssh"), "-N", "-F", "/dev/null", "-D", f"127.0.0.1:{self._port}", "-i", self._folder / "key"),
            *(*flags, "-p", str(self._daemon_port), f"{getpass.getuser()}@127.0.0.1"),
        ]


class Tinyproxy(Carrier):
    def __init__(self, folder: Path) -> None:
        super().__init__(Pair("tinyproxy", "tinyproxy", "tinyproxy"), folder)
        self._port = free_port()

    @property
    def entrance(self) -> list[str]:
        return ["--mode=proxy", f"--proxy=127.0.0.1:{self._port}"]

    def _begin(self) -> None:
        text = (
            f"Port {self._port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 1000\nAllow 127.0.0.1\nLogLevel Critical\n"
        )
        config = write_file(self._folder / "tinyproxy.conf", text.encode())
        self._launch("server", "tinyproxy", [_found("tinyproxy"), "-d", "-c", config], {})
        self._children["server"].wait_ready(lambda: accepts(self._port), READY_SECONDS, POLL_SECONDS)


@dataclass(frozen=True)
class Contest:
    """One comparison. `other` is None if its program is not installed."""

    kind: str
    beside: str
    ours: Callable[[Path], Carrier]
    other: Callable[[Path], Carrier] | None


def contests(pki: Pki, environment: Mapping[str, str]) -> tuple[Contest, ...]:
    has_ssh = all(_where(name) for name in ("ssh", "sshd", "ssh-keygen"))

    def ours(kind: str) -> Callable[[Path], Carrier]:
        return lambda folder: OurProxy(kind, pki, folder, environment)

    return (
        Contest("socks5", "ssh -D", ours("socks5"), SshForward if has_ssh else None),
        Contest("https", "tinyproxy", ours("https"), Tinyproxy if _where("tinyproxy") else None),
    )


def _where(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _found(name: str) -> str:
    found = _where(name)
    assert found is not None
    return found


def value(row: BenchRow, reading: Reading) -> float:
    return reading["mb_per_second" if row.is_transfer else "rate"]


def line(kind: str, row: BenchRow, ours: Sequence[Reading], other: Sequence[Reading]) -> str:
    """Return both medians, and the median of the ratios per round, which vary less than the rates."""
    label = {"dial": "requests", "echo": "exchanges"}.get(row.test, row.test)
    mine = [value(row, reading) for reading in ours]
    told = f"{kind:<7} {label:<10} {row.connections:>3}  {statistics.median(mine):>10,.0f} {row.unit:<5}"
    if not other:
        return told
    theirs = [value(row, reading) for reading in other]
    ratio = statistics.median([one / two for one, two in zip(mine, theirs, strict=True)])
    return f"{told} {statistics.median(theirs):>10,.0f} {row.unit:<5} {ratio:>7.2f}{verdict(kind, row, ratio)}"


def verdict(kind: str, row: BenchRow, ratio: float) -> str:
    """Return the bar and whether it is met; empty if the row has none."""
    if kind != "socks5" or row.test != "dial":
        return ""
    return f"  bar >= {REQUESTS_BAR:g} {'yes' if ratio >= REQUESTS_BAR else 'NO'}"


def contend(contest: Contest, load: Generator, folder: Path, rounds: int, seconds: float) -> list[str]:
    """Run every row, alternating ours and the other; processes are restarted for each round."""
    mine: dict[BenchRow, list[Reading]] = {row: [] for row in ROWS}
    theirs: dict[BenchRow, list[Reading]] = {row: [] for row in ROWS}
    for number in range(rounds):
        _round(contest.ours(folder / f"{contest.kind}-{number}"), load, seconds, mine)
        if contest.other is not None:
            _round(contest.other(folder / f"{contest.beside.split()[0]}-{number}"), load, seconds, theirs)
    return [line(contest.kind, row, mine[row], theirs[row]) for row in ROWS]


def _round(carrier: Carrier, load: Generator, seconds: float, into: dict[BenchRow, list[Reading]]) -> None:
    with carrier:
        for row in ROWS:
            into[row].append(load.measure(row, carrier.entrance, seconds))
        if (gone := carrier.ended()) is not None:
            raise LoadFailed(gone)


def weigh(proxy: OurProxy, load: Generator, seconds: float, held: Sequence[int] = HELD) -> list[str]:
    """Return what one proxy costs: its memory, idle and with open connections, and its CPU for requests."""
    lines = []
    with proxy:
        time.sleep(REST_SECONDS)
        lines.append(memory_line("idle", proxy.proxy_memory()))
        for count in held:
            with load.rest(proxy.entrance, count) as resting:
                resting.wait_opened(count)
                time.sleep(REST_SECONDS)
                lines.append(memory_line(f"{count} connections", proxy.proxy_memory()))
        for row in ROWS[:2]:
            before = proxy.proxy_cpu_seconds()
            requests = load.measure(row, proxy.entrance, seconds)["rate"] * seconds
            cores = (proxy.proxy_cpu_seconds() - before) / requests * 1e3
            lines.append(f"  1,000 requests a second, {row.connections:>2} at a time: {cores:.2f} cores of the proxy")
    return lines


def memory_line(what: str, held: Mapping[str, float]) -> str:
    share = held["uss"] / REQUESTED_MB
    told = f"{share:.2f} of HyperShift's request of {REQUESTED_MB:.1f} MB"
    return f"  memory, {what:<17} rss {held['rss']:>6.1f}  pss {held['pss']:>6.1f}  uss {held['uss']:>6.1f} MB  {told}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare our proxies with ssh -D and tinyproxy.")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; medians are reported (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement in seconds (2)")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    parser.add_argument("--pure", action="store_true", help="run our programs as pure Python")
    options, _ = parser.parse_known_args(arguments)
    rounds, seconds = (1, 0.3) if options.smoke else (options.rounds, options.seconds)
    program = peers.binary("umbilical-load")
    if program is None:
        print("the load generator is missing: run `make peers GROUP=bench`", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as name:
        folder = Path(name)
        environment = {} if options.smoke or options.pure else {"PYTHONPATH": str(compiled_source())}
        pki = Pki(folder / "pki")
        for contest in contests(pki, environment):
            beside = contest.beside if contest.other is not None else f"{contest.beside} is not installed"
            print(f"\nproxy {contest.kind} through our tunnel, and {beside}: ours, other, ratio; {rounds} rounds")
            for told in contend(contest, Generator(program), folder, rounds, seconds):
                print(told, flush=True)
        for kind in ("socks5", "https"):
            print(f"\none {kind} proxy, without the tunnel behind it")
            for told in weigh(
                OurProxy(kind, pki, folder / f"{kind}-weighed", environment), Generator(program), seconds
            ):
                print(told, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
