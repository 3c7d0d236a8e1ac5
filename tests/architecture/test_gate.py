"""`.ci/run` fails if tests were skipped, needed a second run more than once, or left something running."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import suite

SKIPPED: Final = """
import pytest

@pytest.mark.real("no-such-program", "sh")
def test_missing_program() -> None:
    raise AssertionError("unreachable")

@pytest.mark.real("sh")
def test_that_skips_itself() -> None:
    pytest.skip("no reason")

@pytest.mark.real("nft-that-is-missing")
def test_another_missing_program() -> None:
    raise AssertionError("unreachable")
"""
SKIPPED_FILE: Final = """
import pytest

pytest.skip("no reason", allow_module_level=True)
"""
NAMELESS: Final = """
import pytest

@pytest.mark.real
def test_that_names_no_program() -> None:
    pass
"""
LEAKING: Final = """
import subprocess, threading, time
import pytest
from tests.support import leftovers

leftovers.GRACE_SECONDS = 0.5

def start():
    threading.Thread(target=time.sleep, args=(30,), daemon=True, name="forgotten").start()

@pytest.fixture(scope="module")
def wide():
    start()

def test_with_a_fixture_that_outlives_it(wide) -> None:
    pass

def test_that_leaves_a_thread() -> None:
    start()

def test_that_leaves_a_process() -> None:
    global kept
    kept = subprocess.Popen(["sleep", "20"])

def test_that_leaves_nothing() -> None:
    threading.Thread(target=time.sleep, args=(0.1,)).start()
    kept.kill()
    kept.wait()
"""
UNSTEADY: Final = """
import pytest
tries = {}

@pytest.mark.parametrize("number", range(2))
def test_that_passes_when_tried_again(number) -> None:
    tries[number] = tries.get(number, 0) + 1
    assert tries[number] > 1
"""

WANDERING: Final = """
import pytest
from tests.support import leftovers

@pytest.mark.timeout({limit})
def test_that_ends_in_another_network() -> None:
    leftovers.network = lambda: "net:[{limit}]"
"""


def _run(
    folder: Path, source: str, *arguments: str, repository: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(source)
    path = os.pathsep.join((str(repository), str(repository / "tools"), os.environ.get("PYTHONPATH", "")))
    # Without the settings of `.ci/run`: with `CI` set, pytest prints each reason twice.
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    environment |= {"PYTHONPATH": path, "UMBILICAL_REQUIRE_PEERS": "0", **settings}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *arguments]
    command += ["-c", str(repository / "pyproject.toml"), str(folder)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_skip_is_a_failure_where_peers_are_required(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "test_skipped_file.py").write_text(SKIPPED_FILE)
    keep_on = "--continue-on-collection-errors"
    done = _run(tmp_path, SKIPPED, keep_on, repository=repository, UMBILICAL_REQUIRE_PEERS="1")
    assert "1 failed, 3 errors" in done.stdout
    assert done.stdout.count("skipped although UMBILICAL_REQUIRE_PEERS=1:") == 4


def test_otherwise_a_missing_program_skips_and_the_last_lines_show_how_to_get_it(
    repository: Path, tmp_path: Path
) -> None:
    done = _run(tmp_path, SKIPPED.replace("nft-that-is-missing", "proxy-server"), repository=repository, HOME="/none")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-3:-1] == [
        "1 skipped because no-such-program is missing: put it on PATH",
        "1 skipped because proxy-server is missing: run `make peers`",
    ]


def test_a_mark_that_names_no_program_is_an_error(repository: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, NAMELESS, repository=repository)
    assert done.returncode != 0
    assert "test_that_names_no_program" in done.stderr


def test_a_test_that_leaves_a_thread_or_a_process_fails_unless_a_wider_fixture_started_it(
    repository: Path, tmp_path: Path
) -> None:
    done = _run(tmp_path, LEAKING, repository=repository)
    failed = re.findall(r"at teardown of (\w+) _.*?left behind: (\w+)", done.stdout, re.DOTALL)
    assert failed == [("test_that_leaves_a_thread", "thread"), ("test_that_leaves_a_process", "process")]


def test_the_longest_file_runs_first_and_a_file_that_ends_in_another_network_fails(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_longer.py").write_text(WANDERING.format(limit=900))
    done = _run(tmp_path, WANDERING.format(limit=20), "-rE", repository=repository)
    assert re.findall(r"^ERROR .*(test_\w+)\.py", done.stdout, re.MULTILINE) == ["test_longer", "test_sample"]
    assert done.stdout.count("Error: the file's tests left this thread in another network namespace") == 2


def test_one_second_run_is_accepted_and_another_fails_the_whole_run(repository: Path, tmp_path: Path) -> None:
    record = tmp_path / "second-runs"
    again = {"UMBILICAL_SECOND_RUNS": str(record)}
    runs = [
        _run(tmp_path, UNSTEADY, "--reruns=1", "-n1", "-k", f"again[{number}]", repository=repository, **again)
        for number in (0, 1)
    ]
    assert [done.returncode for done in runs] == [0, 1]
    assert "again[0] ran twice, the first time it ended with" in runs[0].stdout
    assert "assert tries[number] > 1" in runs[0].stdout
    assert [name.rpartition("::")[2] for name in record.read_text().split()] == [
        "test_that_passes_when_tried_again[0]",
        "test_that_passes_when_tried_again[1]",
    ]


def test_tests_marked_alone_run_in_a_separate_call_without_workers(tmp_path: Path) -> None:
    for name, text in {"a/test_a.py": "mark.alone", "b/test_b.py": "mark.alone", "b/test_c.py": "mark.real"}.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    beside, alone = suite.commands("real", ["-x", f"--ignore={tmp_path / 'tests' / 'a'}"], tmp_path)
    assert "-n" in beside
    assert "(real) and not alone" in beside
    assert "-n" not in alone
    assert "(real) and alone" in alone
    assert [Path(argument).name for argument in alone if argument.endswith(".py")] == ["test_b.py"]
    assert len(suite.commands("real", [f"--ignore={tmp_path / 'tests'}"], tmp_path)) == 1
    assert suite.commands("real", ["tests/a/test_a.py::test_it"], tmp_path)[1][-1] == "tests/a/test_a.py::test_it"


def test_a_suite_passes_when_one_of_its_calls_selects_nothing_and_fails_when_both_do() -> None:
    assert [suite.exit_status(each) for each in ([0, 5], [5, 0], [5, 5], [1, 0], [5, 2])] == [0, 0, 5, 1, 2]
