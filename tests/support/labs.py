"""Labs for tests: small ones, in both ways of isolation, and what must be the same on this machine before and after."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from umbilical.lab import cgroups, isolation
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab, UpRequest, up
from umbilical.lab.topology import Topology, plan_topology

WAYS: Final = [Isolation.USER_NAMESPACE] if os.geteuid() else [Isolation.ROOT, Isolation.USER_NAMESPACE]
SECRET: Final = "UMBILICAL_TEST_SECRET"
UP_PROGRAM: Final = """
import signal, sys, time
from pathlib import Path
from umbilical.lab.lab import UpRequest, up
from umbilical.lab.topology import plan_topology
topology = plan_topology(masters=1, workers=0)
lab = up(UpRequest(Path(sys.argv[1]), "lab", topology, with_parent=sys.argv[2] == "with-parent"))
print("up", flush=True)
if sys.argv[2] == "with-parent":
    lab.start("master-0", "sleeper", ["sleep", "1000"])
    print("started", flush=True)
    time.sleep(60)
"""
"""`python -c UP_PROGRAM DIRECTORY with-parent|alone`."""


def small() -> Topology:
    return plan_topology(masters=1, workers=0)


def request(path: Path) -> UpRequest:
    return UpRequest(path, "lab", small())


@contextmanager
def isolated(way: Isolation) -> Iterator[None]:
    """Bring labs up in this way: root may use a user namespace too, and it is the same to the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "choose", lambda: way)
        yield


@contextmanager
def running(path: Path, **changes: object) -> Iterator[Lab]:
    lab = up(replace(request(path), **changes))  # type: ignore[arg-type]
    try:
        yield lab
    finally:
        lab.down()


def start_up(path: Path, how: str = "alone") -> subprocess.Popen[bytes]:
    """Bring a lab up in a process of its own, which may then be killed."""
    return subprocess.Popen([sys.executable, "-c", UP_PROGRAM, str(path), how], stdout=subprocess.PIPE)


def await_line(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdout is not None
    while (said := process.stdout.readline()).strip() != line:
        assert said, f"it ended before it said {line!r}"


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


def processes_naming(path: Path) -> list[str]:
    """List the command lines on this machine in which the path stands as a word of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(path) in words:
                found.append(b" ".join(words).decode(errors="replace"))
    return found


def machine_picture() -> dict[str, object]:
    """Describe what a lab must leave alone: links, routes, rules and mounts of the namespaces that we are in."""
    commands = {
        "links": ["ip", "-j", "link"],
        "routes": ["ip", "-j", "route", "show", "table", "all"],
        "IPv6 routes": ["ip", "-6", "-j", "route", "show", "table", "all"],
        "policies": ["ip", "-j", "rule"],
    }
    seen: dict[str, object] = {name: json.loads(_output(command) or "[]") for name, command in commands.items()}
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    # Named namespaces are other programs'; they come and go while tests run.
    seen["mounts"] = sorted(line for line in mounts if not line.split()[1].startswith("/run/netns/"))
    if not os.geteuid():
        seen["rules"] = _output(["nft", "list", "ruleset"])
    return seen


def control_groups_of(directory: Path) -> list[Path]:
    """List those of this lab, whatever its name: other labs come and go meanwhile, and theirs with them."""
    digest = cgroups.lab_group("lab", directory).rpartition("-")[2]
    return sorted(cgroups.ROOT.glob(f"**/{cgroups.PREFIX}*-{digest}"))


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
