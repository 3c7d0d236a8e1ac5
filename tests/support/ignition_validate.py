"""Ignition's own validator (a peer from the cache), for every test that writes a config."""

import subprocess
from typing import Final

import peers

PROGRAM: Final = "ignition-validate"
_TIMEOUT_SECONDS: Final = 60.0


def validate(content: bytes) -> None:
    """Raise AssertionError with the validator's words when it refuses the config; its warnings are no refusal."""
    refusal = refusal_of(content)
    assert refusal is None, refusal


def refusal_of(content: bytes) -> str | None:
    program = peers.binary(PROGRAM)
    assert program is not None, "mark the test @pytest.mark.real('ignition-validate')"
    done = subprocess.run([program, "-"], input=content, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
    return None if done.returncode == 0 else (done.stdout + done.stderr).decode(errors="replace")
