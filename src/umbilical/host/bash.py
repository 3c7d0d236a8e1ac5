"""Asks the real bash about scripts; nothing of them is run."""

from typing import Final

from umbilical.fault import HostError
from umbilical.host.processes import run

# Milliseconds for a script of any size; a bash that takes longer hangs.
SYNTAX_SECONDS: Final = 30.0


def syntax_complaint(script: bytes) -> str | None:
    """Return what `bash -n` says against the script, in one line; None where it has nothing to say."""
    try:
        run(["bash", "-n"], SYNTAX_SECONDS, script)
    except HostError as fault:
        return " | ".join(fault.why.splitlines())
    return None
