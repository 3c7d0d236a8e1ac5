"""`make demo` tells its story to the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import peers


def _tell(repository: Path, programs: Path) -> str:
    environment = {**os.environ, "UMBILICAL_DEMO_PROGRAMS": str(programs), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(repository / "tools" / "demo.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _assert_whole(story: str) -> None:
    chapters = [line for line in story.splitlines() if line[:2] in {"1.", "2.", "3.", "4.", "5."}]
    assert len(chapters) == 5
    assert "No agent available" in story
    assert "pod harmless: allowed" in story
    assert "pod mighty: denied" in story
    assert "connection refused" in story
    assert "the socket is gone" in story


def test_the_demo_tells_the_whole_life_of_our_tunnel(repository: Path) -> None:
    _assert_whole(_tell(repository, Path(sys.executable).parent))


@pytest.mark.real("proxy-server", "proxy-agent")
def test_the_demo_tells_the_same_with_upstream(repository: Path) -> None:
    server = peers.binary("proxy-server")
    assert server is not None
    _assert_whole(_tell(repository, server.parent))
