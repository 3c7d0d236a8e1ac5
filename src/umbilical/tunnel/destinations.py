"""The agent's gate for dials: the rules of its options and of a file that is followed, and counts of what it denied.

If the changed file cannot be used, the previous rules stay in use. Open tunnels are not judged again.
"""

import logging
import socket
from collections.abc import Callable
from typing import Final

from umbilical.fault import StartupError
from umbilical.konnectivity.destinations import Destinations, Refusal, parse_destinations
from umbilical.tunnel import causes
from umbilical.tunnel.certificates import Stamp, file_stamp
from umbilical.tunnel.settings import DestinationSettings

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Minimum time between looks at the file by dials."""


def is_of_this_machine(family: int, address: str) -> bool:
    """Only an address of this machine can be bound; with `ip_nonlocal_bind` any can, and counts as one."""
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class DestinationGate:
    """Judges names and addresses of dials. `denied` counts refusals by kind."""

    def __init__(
        self,
        settings: DestinationSettings,
        own_ports: frozenset[int],
        is_own: Callable[[int, str], bool] = is_of_this_machine,
    ) -> None:
        """Raises StartupError when a rule or the file cannot be used."""
        self.denied: Final[dict[str, int]] = {}
        self._settings: Final = settings
        self.own_ports: Final = own_ports
        self._is_own: Final = is_own
        self._path: Final = settings.path
        self._stamp: Stamp | None = None
        self._looked_at = -LOOK_SECONDS
        self._rules = self._read()

    def is_open(self, now: float) -> bool:
        """There is nothing to judge."""
        if self._path is not None and now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self.look()
        return not self._rules.judges

    def refusal_of_name(self, host: str, port: int) -> str:
        """Why this name is denied; empty if it is not."""
        if not self._rules.judges_names:
            return ""
        return self._count(self._rules.refusal_of_name(host, port))

    def refusal(self, host: str, family: int, address: str, port: int) -> str:
        """Why this address is denied; empty if it is not. `host` is what the client asked for."""
        packed = socket.inet_pton(family, address.partition("%")[0])
        is_own_port = port in self.own_ports and self._is_own(family, address)
        return self._count(self._rules.refusal(host, packed, port, is_own_port=is_own_port))

    def _count(self, refusal: Refusal | None) -> str:
        if refusal is None:
            return ""
        self.denied[refusal.kind] = self.denied.get(refusal.kind, 0) + 1
        return refusal.words

    def look(self) -> None:
        """Read the file if it has changed."""
        path = self._path
        if path is None or file_stamp(path) == self._stamp:
            return
        try:
            self._rules = self._read()
            logger.info("destination rules reloaded file=%s", path)
        except StartupError as error:
            cause = causes.FailureCause("UMB348", error.why)
            text = "%s changed destination rules cannot be used, the previous ones stay in use file=%s: %s"
            logger.warning(text, cause.code, path, cause.text, extra=cause.fields)

    def _read(self) -> Destinations:
        path, settings = self._path, self._settings
        lines = ""
        try:
            if path is not None:
                self._stamp = file_stamp(path)
                lines = path.read_text(encoding="utf-8")
            return parse_destinations(settings.allowed, settings.denied, lines)
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            what = "the destination rules" if path is None else f"the destination rules in {path}"
            remedy = "write one rule per line: allow 10.0.0.0/8:443, deny 10.1.0.0/16"
            raise StartupError("UMB348", f"cannot use {what}", why, remedy) from error
