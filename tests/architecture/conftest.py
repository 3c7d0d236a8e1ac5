"""Free the syntax trees of all modules after the last architecture test: they are large."""

from pathlib import Path

import pytest
from tests.architecture.rooms import modules


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        modules.cache_clear()
