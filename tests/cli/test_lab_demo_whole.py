"""The demo as people run it: a process in a lab of its own, from the first step to the last, and interrupted."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("unshare", "nft")
SECONDS = 100.0
STEP = re.compile(r"^ +\d+\.\d s  (.*)$")


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    folder.joinpath("scratch").mkdir()
    wishes = {"TMPDIR": str(folder / "scratch"), "XDG_STATE_HOME": str(folder / "state"), "PYTHONIOENCODING": "utf-8"}
    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
    return subprocess.Popen(
        [sys.executable, "-m", "umbilical", "lab", "demo", "--stand-in", *arguments],
        cwd=folder,
        env={**environment, **wishes},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = _start(tmp_path)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=SECONDS)


def _keepers(folder: Path) -> list[str]:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    return [line.decode() for line in lines if str(folder).encode() in line]


def _left(folder: Path) -> list[Path]:
    return list((folder / "scratch").iterdir())


@pytest.mark.real(*PROGRAMS)
def test_the_stand_in_tells_the_whole_story_and_leaves_a_report_only(
    started: subprocess.Popen[str], tmp_path: Path
) -> None:
    out, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 0, out + err
    steps = [match[1] for line in out.splitlines() if (match := STEP.match(line))]
    assert steps[0] == "6 nodes and their networks"
    assert "network is unreachable" in out
    assert "the webhook in the cluster says no" in out
    assert re.search(r"^  agents +5$", out, re.MULTILINE)
    assert re.search(r"^  p50 +\d+\.\d ms$", out, re.MULTILINE)
    assert "✗" not in out
    assert "make demo-real" in out
    page = (tmp_path / "out" / "demo" / "report.html").read_text()
    assert page.count("<figure>") == 4
    assert _left(tmp_path) == []
    assert _keepers(tmp_path) == []


@pytest.mark.real(*PROGRAMS)
@pytest.mark.parametrize("until", ["A webhook", "6 nodes", "the server's static pod", "the cut"])
def test_an_interrupt_at_any_moment_leaves_nothing_behind(
    started: subprocess.Popen[str], until: str, tmp_path: Path
) -> None:
    assert started.stdout is not None
    for line in started.stdout:
        if until in line:
            break
    # A terminal sends it to everybody in the foreground, and people press it twice.
    os.killpg(started.pid, signal.SIGINT)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 8, out + err
    assert _left(tmp_path) == []
    assert _keepers(tmp_path) == []
    assert not (tmp_path / "out").exists()
