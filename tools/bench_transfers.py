"""Measures how many of 2,000 downloads of 5 MB through one pair arrive whole, ours and upstream's (`transfers.py`)."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import peers
import transfers
from bench_compiled import compiled_source
from bench_rows import OURS, UPSTREAM
from bench_tunnel import Pki, RunningTunnel, TunnelPrograms

PROGRAMS: Final = Path(sys.executable).parent
SIZE: Final = 5_000_000
AT_ONCE: Final = 100


def line(name: str, size: int, results: transfers.TransferResults) -> str:
    lost = results.lost.total()
    rate = results.whole * size / 1e6 / results.seconds
    bar = ("met" if lost == 0 else "NO") if name == OURS.name else ""
    told = "; ".join(f"{count:,}: {wrong}" for wrong, count in results.lost.most_common())
    return f"{name:<26}{results.whole:>10,}{lost:>8,}{rate:>10,.0f} MB/s  {bar:<6}{told}".rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Download through our pair and upstream's, and check every byte.")
    parser.add_argument("--transfers", type=int, default=2_000, help="number of transfers (2000)")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    parser.add_argument("--pure", action="store_true", help="run our programs as pure Python")
    options, _ = parser.parse_known_args(arguments)
    server, agent = peers.binary("proxy-server"), peers.binary("proxy-agent")
    if server is None or agent is None:
        print("a program is missing: run `make peers GROUP=konnectivity`", file=sys.stderr)
        return 1
    environment = {} if options.smoke or options.pure else {"PYTHONPATH": str(compiled_source())}
    count, size = (4, 100_000) if options.smoke else (options.transfers, SIZE)
    programs = {
        "ours": TunnelPrograms(PROGRAMS / "proxy-server", PROGRAMS / "proxy-agent", True, environment),
        "upstream": TunnelPrograms(server, agent, False),
    }
    print(f"\n{count:,} downloads of {size / 1e6:g} MB, {AT_ONCE} at once, every byte checked; bar: none lost")
    print(f"{'pair':<26}{'whole':>10}{'lost':>8}{'':>10}       bar")
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as name:
        pki = Pki(Path(name) / "pki")
        for pair in (OURS, UPSTREAM):
            with RunningTunnel(pair, "http-connect", programs, pki, Path(name) / pair.name) as tunnel:
                results = asyncio.run(transfers.run(tunnel.socket_path, count, size, AT_ONCE))
            print(line(pair.name, size, results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
