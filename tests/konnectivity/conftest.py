"""What tests of the registry share."""

import pytest
from tests.support.registry_driver import RegistryDriver


@pytest.fixture
def scene() -> RegistryDriver:
    return RegistryDriver()
