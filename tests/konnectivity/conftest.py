"""What tests of the switchboard share."""

import pytest
from tests.support.switchboard_scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()
