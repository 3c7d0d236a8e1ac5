"""Services of the host: firewall, VIPs and NAT from the host plan of stage 02, and HAProxy.

Only missing actions of the plan are done, recorded and undone. HAProxy's configuration is validated, replaced
atomically and reloaded.
"""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.infrastructure.host_plan import HostAction
from umbilical.hardway.artifacts.infrastructure.places import SERVICE_PLACES
from umbilical.hardway.machines.host import Host, do, holds, put
from umbilical.host import commands
from umbilical.host.files import make_directory, write_file
from umbilical.host.machine_records import BackendServer, InfraProbe

PLAN_RECORD: Final = "host-plan.json"
"""Below .umbilical/: the actions that were done, with their undo commands."""


def read_plan(content: bytes) -> list[HostAction]:
    """Read host-plan.json. Raises HardwayError: invalid content (UMB733)."""
    try:
        return [_action(value) for value in json.loads(content)["actions"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise HardwayError("UMB733", "could not read host-plan.json", why, "umbilical stage retry 2") from None


def _action(value: Mapping[str, Any]) -> HostAction:
    return HostAction(*(str(value[name]) for name in ("id", "why", "check", "do", "undo")))


class HostPlan:
    def __init__(self, host: Host, record: Path) -> None:
        self._host = host
        self._record = record

    def apply(self, actions: list[HostAction]) -> None:
        """Do the missing actions, in order."""
        for action in actions:
            if not self._is_done(action):
                # The record first: an action that was killed must be undone too.
                self._remember(action)
                do(self._host, "bash", "-c", action.do)

    def undo(self) -> None:
        """Undo the recorded actions, the last first. Idempotent."""
        while done := self._remembered():
            last = done[-1]
            # An action may be undone already.
            if self._is_done(last):
                do(self._host, "bash", "-c", last.undo)
            self._write(done[:-1])

    def probes(self, actions: list[HostAction]) -> list[InfraProbe]:
        return [
            InfraProbe(action.id, is_done, "done" if is_done else action.why, action.do)
            for action in actions
            for is_done in [self._is_done(action)]
        ]

    def _is_done(self, action: HostAction) -> bool:
        return holds(self._host, "bash", "-c", action.check)

    def _remembered(self) -> list[HostAction]:
        return read_plan(self._record.read_bytes()) if self._record.exists() else []

    def _remember(self, action: HostAction) -> None:
        done = self._remembered()
        if action not in done:
            self._write([*done, action])

    def _write(self, actions: list[HostAction]) -> None:
        content = {"actions": [vars(action) for action in actions]}
        make_directory(self._record.parent)
        write_file(self._record, json.dumps(content, indent=2).encode() + b"\n", overwrite=True)


CONFIG: Final = SERVICE_PLACES.config
CANDIDATE: Final = f"{CONFIG}.candidate"
BEFORE: Final = f"{CONFIG}.before-umbilical"
"""The host's own config; restored when the cluster is destroyed."""
FIRST: Final = f"{CONFIG}.first"
"""The last config of stage 02: while it is active, no later stage has set another. Empty while it is being set."""
SERVICE: Final = "haproxy"
MODE: Final = 0o644


class BalancerService:
    def __init__(self, host: Host) -> None:
        self._host = host

    def begin(self, config: bytes, certificates: Mapping[str, bytes]) -> None:
        """Write the certificates next to the config, and use it unless a later stage has set another."""
        for name, content in certificates.items():
            put(self._host, str(PurePosixPath(CONFIG).with_name(PurePosixPath(name).name)), content, MODE)
        if not holds(self._host, "test", "-e", FIRST):
            # -n: after a killed run the saved file is the host's own, and the current one may be ours.
            do(self._host, "sh", "-c", f"if test -e {CONFIG}; then cp -n --preserve=all -- {CONFIG} {BEFORE}; fi")
        if not holds(self._host, "test", "-s", FIRST) or holds(self._host, "cmp", "--silent", CONFIG, FIRST):
            # Empty until the config is active, so that a killed run starts again.
            put(self._host, FIRST, b"", MODE)
            self.use(config)
        put(self._host, FIRST, config, MODE)
        do(self._host, "systemctl", "enable", "--now", SERVICE)

    def use(self, config: bytes) -> None:
        """Activate a config. Raises HardwayError: HAProxy rejected it (UMB735); nothing was changed."""
        put(self._host, CANDIDATE, config, MODE)
        done = self._host.run(["haproxy", "-c", "-f", CANDIDATE])
        wrong = commands.faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))
        if wrong:
            remedy = "umbilical stage lint --only HA; the active config is unchanged"
            raise HardwayError("UMB735", "HAProxy rejected the load balancer's config", wrong, remedy)
        do(self._host, "mv", "-f", "--", CANDIDATE, CONFIG)
        do(self._host, "systemctl", "reload-or-restart", SERVICE)

    def servers(self) -> list[BackendServer]:
        socket = SERVICE_PLACES.stats_socket
        return commands.parse_stats(
            do(self._host, "socat", "-t", "10", "STDIO", f"UNIX-CONNECT:{socket}", stdin=b"show stat\n")
        )

    def faults(self) -> str:
        """Return what is wrong with the service now; empty if nothing."""
        if not holds(self._host, "systemctl", "is-active", "--quiet", SERVICE):
            return f"the service {SERVICE} is not active"
        done = self._host.run(["haproxy", "-c", "-f", CONFIG])
        return commands.faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))

    def give_back(self) -> None:
        """Restore the host's own config. Idempotent."""
        if not holds(self._host, "test", "-e", FIRST):
            return
        if holds(self._host, "test", "-e", BEFORE):
            do(self._host, "mv", "-f", "--", BEFORE, CONFIG)
            do(self._host, "systemctl", "reload-or-restart", SERVICE)
        else:
            do(self._host, "systemctl", "disable", "--now", SERVICE)
            do(self._host, "rm", "-f", "--", CONFIG)
        do(self._host, "rm", "-f", "--", CANDIDATE, FIRST, SERVICE_PLACES.server_ca, SERVICE_PLACES.machine_config_ca)
