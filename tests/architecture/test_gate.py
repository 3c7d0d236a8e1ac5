"""The gate cannot be passed by tests that did not run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

MISSING_PROGRAM: Final = """
import pytest

@pytest.mark.real("no-such-program")
def test_against_a_program_that_is_not_there() -> None:
    raise AssertionError("unreachable")
"""
SKIPS_ITSELF: Final = """
import pytest

@pytest.mark.real
def test_that_skips_itself() -> None:
    pytest.skip("no mood")
"""
SKIPPED_FILE: Final = """
import pytest

pytest.skip("no mood", allow_module_level=True)
"""


def _run(repository: Path, folder: Path, source: str, required: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(source)
    environment = {
        **os.environ,
        "UMBILICAL_REQUIRE_PEERS": required,
        "PYTHONPATH": os.pathsep.join((str(repository), str(repository / "tools"), os.environ.get("PYTHONPATH", ""))),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(repository / "pyproject.toml"), str(folder)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("source", [MISSING_PROGRAM, SKIPS_ITSELF, SKIPPED_FILE])
def test_a_skip_is_a_failure_where_peers_are_required(repository: Path, tmp_path: Path, source: str) -> None:
    done = _run(repository, tmp_path, source, "1")
    assert done.returncode not in (0, 5), done.stdout
    assert "skipped although UMBILICAL_REQUIRE_PEERS=1" in done.stdout


@pytest.mark.parametrize("source", [MISSING_PROGRAM, SKIPS_ITSELF])
def test_elsewhere_a_missing_program_only_skips(repository: Path, tmp_path: Path, source: str) -> None:
    done = _run(repository, tmp_path, source, "0")
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
