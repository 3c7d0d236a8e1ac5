"""Tells of dials that fail: the first of a kind at once, then how many there were, so that a storm is a few lines.

The one line that every tunnel leaves is not written here.
"""

import logging
from typing import Final

from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.tunnel.causes import NEXT, log_fields

logger = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 30.0
"""The same kind is told again after this long, if it goes on."""
MAX_KINDS: Final = 1024
"""Kinds are told apart by agent, and agents come and go."""


class Hush:
    """Keeps the same thing from being said again and again."""

    def __init__(self, repeat_seconds: float = REPEAT_SECONDS) -> None:
        self._repeat_seconds = repeat_seconds
        self._told: dict[str, tuple[float, int]] = {}

    def due(self, kind: str, now: float) -> int | None:
        """How often it happened unsaid since it was last said; None: say nothing now."""
        told_at, unsaid = self._told.get(kind, (now - self._repeat_seconds, 0))
        if now - told_at < self._repeat_seconds:
            self._told[kind] = (told_at, unsaid + 1)
            return None
        if len(self._told) >= MAX_KINDS:
            self._told.clear()
        self._told[kind] = (now, 0)
        return unsaid


class DialNotices:
    def __init__(self) -> None:
        self._hush: Final = Hush()

    def refused(self, code: str, address: str, agent: str, text: str, now: float) -> None:
        """A client's dial failed. Endpoints fail one by one; what agents and routes lack concerns all dials."""
        if code == "UMB401" and address == PROBE_ADDRESS:
            return  # one of our own asked whether an agent answers, and one did
        about = address if code in ("UMB401", "UMB402", "UMB404") else agent
        self._say(code, about, f"dial of {address} failed agent={agent}: {text}", now)

    def _say(self, code: str, about: str, text: str, now: float) -> None:
        unsaid = self._hush.due(f"{code} {about}", now)
        if unsaid is not None:
            more = f" ({unsaid} more since the last such line)" if unsaid else ""
            logger.warning("%s %s%s", code, text, more, extra=log_fields(code, NEXT[code]))
