"""HAProxy as a service of the host: checked before it is believed, replaced in one piece, reloaded, asked how it is."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.infrastructure.places import SERVICE_PLACES
from umbilical.hardway.machines.libvirt.host import Host, do, holds, put
from umbilical.host import commands
from umbilical.host.machine_records import BackendServer

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
        """Have this config at work.

        Raises:
            HardwayError: HAProxy finds fault with it (UMB735), and nothing has changed.
        """
        put(self._host, CANDIDATE, config, MODE)
        done = self._host.run(["haproxy", "-c", "-f", CANDIDATE])
        wrong = commands.faults(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))
        if wrong:
            remedy = "umbilical stage lint: rules HA-*; the config at work was left as it is"
            raise HardwayError("UMB735", "the load balancer's config is not taken", wrong, remedy)
        do(self._host, "mv", "-f", "--", CANDIDATE, CONFIG)
        do(self._host, "systemctl", "reload-or-restart", SERVICE)

    def servers(self) -> list[BackendServer]:
        """Ask how every server of every backend is."""
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
