"""Commands as a user runs them, in this process: what they print, with the exit status already judged."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.fixture_types import Captured

from umbilical.cli import main


class Told(NamedTuple):
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Told]


def runner(captured: Captured) -> Run:
    """Return a function that runs a command and returns what that one printed."""

    def run(*arguments: object, status: int = 0) -> Told:
        captured.readouterr()
        found = main.run([str(one) for one in arguments])
        told = Told(*captured.readouterr())
        assert found == status, f"exit status {found}, not {status}:\n{told.out}{told.err}"
        return told

    return run
