"""The trees of all modules are large: they go when the rules have been looked at."""

from pathlib import Path

import pytest
from tests.architecture.rooms import modules


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        modules.cache_clear()
