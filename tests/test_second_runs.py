"""Second runs in the gate: a few are named, more are a failure."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.conftest import MAX_SECOND_RUNS, pytest_sessionfinish


def outcome(again: int, before: pytest.ExitCode = pytest.ExitCode.OK) -> tuple[pytest.ExitCode, list[str]]:
    lines: list[str] = []
    reporter = SimpleNamespace(stats={"rerun": [object()] * again}, write_line=lines.append)
    manager = SimpleNamespace(get_plugin={"terminalreporter": reporter}.get)
    session: Any = SimpleNamespace(config=SimpleNamespace(pluginmanager=manager), exitstatus=before)
    pytest_sessionfinish(cast(pytest.Session, session))
    return session.exitstatus, lines


def test_a_few_second_runs_are_borne() -> None:
    assert outcome(0) == (pytest.ExitCode.OK, [])
    assert outcome(MAX_SECOND_RUNS) == (pytest.ExitCode.OK, [])


def test_one_more_fails_the_run_and_says_why() -> None:
    status, lines = outcome(MAX_SECOND_RUNS + 1)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert f"{MAX_SECOND_RUNS + 1} tests needed a second run" in lines[0]


def test_what_failed_already_stays_failed() -> None:
    assert outcome(MAX_SECOND_RUNS + 1, pytest.ExitCode.INTERRUPTED) == (pytest.ExitCode.INTERRUPTED, [])
