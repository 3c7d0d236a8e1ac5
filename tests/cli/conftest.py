"""Commands set logging up for a process; tests give the loggers back."""

from collections.abc import Iterator

import pytest

from umbilical.cli import log_setup


@pytest.fixture(autouse=True)
def _loggers_given_back() -> Iterator[None]:
    yield
    log_setup.uninstall(log_setup.install(log_setup.KlogForm(), [], debug=False))
