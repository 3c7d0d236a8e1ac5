"""Compares our image with an installation of the same wheel: time from start to ready, and memory.

    bench_image.py [--dist FOLDER] [--python PYTHON] [--starts N]

Needs root, and what `make image` writes. The times inside include entering the root, a few milliseconds.
"""

import argparse
import platform
import site
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.image_archives import image_pair, read_image  # noqa: E402
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, http_get  # noqa: E402
from tests.support.tunnel_pki import make_tunnel_pki  # noqa: E402

import image  # noqa: E402
from umbilical.lab.kubelet.archives import ARCHITECTURES  # noqa: E402

READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.002
INSTALL_SECONDS: Final = 300.0
KIB: Final = 1024


@contextmanager
def pair_inside(archive: Path, folder: Path) -> Iterator[TunnelPair]:
    """Yield a pair whose programs are the image's."""
    root = folder / "root"
    read_image(archive).unpack(root)
    run = folder / "run"
    run.mkdir()
    folder.chmod(0o755)
    pair = image_pair(root, run)
    try:
        yield pair
    finally:
        pair.stop()


@contextmanager
def pair_outside(wheel: Path, python: str, folder: Path) -> Iterator[TunnelPair]:
    """Yield a pair whose programs are installed into an environment; dependencies are those of this one."""
    place, run = folder / "venv", folder / "outside"
    run.mkdir()
    subprocess.run([python, "-m", "venv", "--without-pip", place], timeout=INSTALL_SECONDS, check=True)
    (packages,) = (place / "lib").glob("python3*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--ignore-installed", str(wheel)], timeout=INSTALL_SECONDS, check=True)
    pair = TunnelPair(Shape(), make_tunnel_pki(run), run)
    for daemon in (pair.server, pair.agent):
        program = place / "bin" / Path(daemon.command[0]).name
        daemon.command = ["env", "-u", "PYTHONPATH", str(program), *daemon.command[1:]]
    try:
        yield pair
    finally:
        pair.stop()


def start(daemon: Daemon, port: int, path: str) -> float:
    """Return the milliseconds until a new process answers 200. Raises TimeoutError: not within a minute."""
    started = time.monotonic()
    daemon.start()
    while http_get(f"http://127.0.0.1:{port}{path}")[0] != 200:
        if time.monotonic() - started > READY_SECONDS:
            raise TimeoutError(f"{daemon.command[0]} is not ready\n{daemon.log_tail()}")
        time.sleep(POLL_SECONDS)
    return (time.monotonic() - started) * 1000


def memory_kib(pid: int) -> int:
    """Return what a process has for itself, with its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measure(pair: TunnelPair) -> dict[str, float]:
    server = start(pair.server, pair.ports.server_health, "/healthz")
    agent = start(pair.agent, pair.ports.agent_health, "/readyz")
    memory = {daemon: memory_kib(daemon.pid) / KIB for daemon in (pair.server, pair.agent)}
    pair.stop()
    return {
        "server ready, ms": server,
        "agent ready, ms": agent,
        "server, MiB": memory[pair.server],
        "agent, MiB": memory[pair.agent],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare our image with an installation of the same wheel.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder with image and compiled wheel")
    parser.add_argument("--python", default=sys.executable, help="Python of the installation")
    parser.add_argument("--starts", type=int, default=11, help="number of starts of each, one after the other")
    options = parser.parse_args()
    architecture = ARCHITECTURES[platform.machine()]
    archive, wheel = options.dist / image.file_name(architecture), image.choose_wheel(options.dist, architecture)
    with (
        tempfile.TemporaryDirectory(prefix="umbilical-bench-") as name,
        pair_inside(archive, Path(name)) as inside,
        pair_outside(wheel, options.python, Path(name)) as outside,
    ):
        rows = [(measure(inside), measure(outside)) for _ in range(options.starts)]
    for what in rows[0][0]:
        ours, other = (statistics.median(row[where][what] for row in rows) for where in (0, 1))
        print(f"{what:18} inside {ours:7.1f}  outside {other:7.1f}  ratio {ours / other:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
