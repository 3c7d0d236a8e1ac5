"""Services of the host: firewall, VIPs and NAT from the plan of stage 02, and HAProxy.

Of the plan only what was missing is done, remembered and undone. HAProxy's configuration is checked before it is used,
replaced in one piece and reloaded.
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
from umbilical.host.machine_records import BackendServer, Probe

PLAN_RECORD: Final = "host-plan.json"
"""Below .umbilical/: the actions that were done here, with how they are undone."""


def read_plan(content: bytes) -> list[HostAction]:
    """Read host-plan.json. Raises HardwayError: it is something else (UMB733)."""
    try:
        return [_action(value) for value in json.loads(content)["actions"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise HardwayError("UMB733", "the host's plan cannot be read", why, "umbilical stage retry 2") from None


def _action(value: Mapping[str, Any]) -> HostAction:
    return HostAction(*(str(value[name]) for name in ("id", "why", "check", "do", "undo")))


class HostPlan:
    def __init__(self, host: Host, record: Path) -> None:
        self._host = host
        self._record = record

    def apply(self, actions: list[HostAction]) -> None:
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

    def probes(self, actions: list[HostAction]) -> list[Probe]:
        return [
            Probe(action.id, is_done, "there" if is_done else action.why, action.do)
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
"""What the host had; put back when the cluster is destroyed."""
FIRST: Final = f"{CONFIG}.first"
"""What stage 02 asked for last: while it is at work, no later stage has set another one. Empty: it is on its way."""
SERVICE: Final = "haproxy"
MODE: Final = 0o644


class BalancerService:
    def __init__(self, host: Host) -> None:
        self._host = host

    def begin(self, config: bytes, certificates: Mapping[str, bytes]) -> None:
        """Lay what the config names beside it, and use it unless a later stage has set another one."""
        for name, content in certificates.items():
            put(self._host, str(PurePosixPath(CONFIG).with_name(PurePosixPath(name).name)), content, MODE)
        if not holds(self._host, "test", "-e", FIRST):
            # -n: what a killed run has saved already is the host's own, what lies there now may be ours.
            do(self._host, "sh", "-c", f"if test -e {CONFIG}; then cp -n --preserve=all -- {CONFIG} {BEFORE}; fi")
        if not holds(self._host, "test", "-s", FIRST) or holds(self._host, "cmp", "--silent", CONFIG, FIRST):
            # Empty as long as it is not at work: who is killed on the way begins anew.
            put(self._host, FIRST, b"", MODE)
            self.use(config)
        put(self._host, FIRST, config, MODE)
        do(self._host, "systemctl", "enable", "--now", SERVICE)

    def use(self, config: bytes) -> None:
        """Have this config at work. Raises HardwayError: HAProxy refuses it (UMB735); nothing has changed."""
        put(self._host, CANDIDATE, config, MODE)
        done = self._host.run(["haproxy", "-c", "-f", CANDIDATE])
        wrong = commands.faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))
        if wrong:
            remedy = "umbilical stage lint: rules HA-*; the config at work was left as it is"
            raise HardwayError("UMB735", "the load balancer's config is not taken", wrong, remedy)
        do(self._host, "mv", "-f", "--", CANDIDATE, CONFIG)
        do(self._host, "systemctl", "reload-or-restart", SERVICE)

    def servers(self) -> list[BackendServer]:
        socket = SERVICE_PLACES.stats_socket
        return commands.parse_stats(
            do(self._host, "socat", "-t", "10", "STDIO", f"UNIX-CONNECT:{socket}", stdin=b"show stat\n")
        )

    def faults(self) -> str:
        """Say what is wrong with it now; empty if nothing is."""
        if not holds(self._host, "systemctl", "is-active", "--quiet", SERVICE):
            return f"the service {SERVICE} is not active"
        done = self._host.run(["haproxy", "-c", "-f", CONFIG])
        return commands.faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))

    def give_back(self) -> None:
        """Put back what the host had before. Doing it twice is fine."""
        if not holds(self._host, "test", "-e", FIRST):
            return
        if holds(self._host, "test", "-e", BEFORE):
            do(self._host, "mv", "-f", "--", BEFORE, CONFIG)
            do(self._host, "systemctl", "reload-or-restart", SERVICE)
        else:
            do(self._host, "systemctl", "disable", "--now", SERVICE)
            do(self._host, "rm", "-f", "--", CONFIG)
        do(self._host, "rm", "-f", "--", CANDIDATE, FIRST, SERVICE_PLACES.server_ca, SERVICE_PLACES.machine_config_ca)
