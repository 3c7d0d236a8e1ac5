"""Short names for the types of pytest's own fixtures."""

import pytest

Captured = pytest.CaptureFixture[str]
Logged = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
