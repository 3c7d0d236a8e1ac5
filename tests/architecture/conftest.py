"""The trees of all modules are large: they go when the rules have been looked at."""

from collections.abc import Iterator

import pytest
from tests.architecture.rooms import modules


@pytest.fixture(scope="package", autouse=True)
def _forgotten_modules() -> Iterator[None]:
    yield
    modules.cache_clear()
