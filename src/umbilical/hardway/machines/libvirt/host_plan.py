"""The host's firewall, VIPs and NAT from the plan of stage 02: done where missing, remembered, and only that undone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.infrastructure.host_plan import Action
from umbilical.hardway.machines.libvirt.host import Host, do, holds
from umbilical.host.files import make_directory, write_file
from umbilical.host.machine_records import Probe

RECORD: Final = "host-plan.json"
"""Below .umbilical/: the actions that were done here, with how they are undone."""


def read_plan(content: bytes) -> list[Action]:
    """Read host-plan.json.

    Raises:
        HardwayError: it is something else (UMB733).
    """
    try:
        return [_action(value) for value in json.loads(content)["actions"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise HardwayError("UMB733", "the host's plan cannot be read", why, "umbilical stage retry 2") from None


def _action(value: Mapping[str, Any]) -> Action:
    return Action(*(str(value[name]) for name in ("id", "why", "check", "do", "undo")))


class HostPlan:
    def __init__(self, host: Host, record: Path) -> None:
        self._host = host
        self._record = record

    def apply(self, actions: list[Action]) -> None:
        """Do what is missing, in order."""
        for action in actions:
            if not self._is_done(action):
                # First the record: what was begun must be taken back too.
                self._remember(action)
                do(self._host, "bash", "-c", action.do)

    def undo(self) -> None:
        """Take back what was done here, the last first. Doing it twice is fine."""
        while done := self._remembered():
            last = done[-1]
            # What is away already cannot be taken away: nobody needs to know.
            if self._is_done(last):
                do(self._host, "bash", "-c", last.undo)
            self._write(done[:-1])

    def probes(self, actions: list[Action]) -> list[Probe]:
        return [
            Probe(action.id, is_done, "there" if is_done else action.why, action.do)
            for action in actions
            for is_done in [self._is_done(action)]
        ]

    def _is_done(self, action: Action) -> bool:
        return holds(self._host, "bash", "-c", action.check)

    def _remembered(self) -> list[Action]:
        return read_plan(self._record.read_bytes()) if self._record.exists() else []

    def _remember(self, action: Action) -> None:
        done = self._remembered()
        if action not in done:
            self._write([*done, action])

    def _write(self, actions: list[Action]) -> None:
        content = {"actions": [vars(action) for action in actions]}
        make_directory(self._record.parent)
        write_file(self._record, json.dumps(content, indent=2).encode() + b"\n", overwrite=True)
