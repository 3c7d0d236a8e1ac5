"""Commands set logging up for a process; tests give the loggers back."""

from collections.abc import Iterator

import pytest
from tests.support.commands import Run, runner
from tests.support.fixture_types import Captured

from umbilical.cli import log_setup


@pytest.fixture(autouse=True)
def _loggers_given_back() -> Iterator[None]:
    yield
    log_setup.uninstall(log_setup.install(log_setup.KlogForm(), [], debug=False))


@pytest.fixture
def umbilical(capfd: Captured) -> Run:
    """Run a command: `umbilical("pki", "verify", folder, status=1).out`."""
    return runner(capfd)
