"""What the server's log tells of dials and agents: failed dials, dials that moved on, who is last choice and why.

The first of a kind is told at once, then how many there were, so that a storm is a few lines. The one line that every
tunnel leaves is not written here.
"""

import logging
from typing import Final

from umbilical.konnectivity.commands import TellHealth, TellRedial
from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.konnectivity.links import AgentLink
from umbilical.tunnel.causes import NEXT, FailureCause, log_fields

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

    def more(self, kind: str, now: float) -> str | None:
        """As `due`, in words to put behind the line; None: say nothing now."""
        unsaid = self.due(kind, now)
        return f" ({unsaid} more since the last such line)" if unsaid else None if unsaid is None else ""


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
        more = self._hush.more(f"{code} {about}", now)
        if more is not None:
            logger.warning("%s %s%s", code, text, more, extra=log_fields(code, NEXT[code]))


def tell_health(command: TellHealth) -> None:
    link = command.link
    if not link.sick:
        logger.info("agent is chosen again agent=%s: %s", link.agent_id, command.cause)
        return
    cause = FailureCause("UMB412", command.cause)
    logger.warning(
        "%s agent is last choice agent=%s tunnels=%d dials=%d: %s",
        cause.code,
        link.agent_id,
        len(link.connections),
        len(link.pending),
        cause.text,
        extra=cause.fields,
    )


def tell_redial(command: TellRedial) -> None:
    """Not by default: an agent that goes may leave a thousand dials, and the line of each tunnel says it too."""
    tunnel = command.tunnel
    logger.debug(
        "dial goes to another agent dial=%d target=%s from=%s to=%s: %s",
        tunnel.dial_id,
        tunnel.address,
        command.left.agent_id,
        tunnel.link.agent_id if tunnel.link is not None else "-",
        command.cause,
    )


def tell_networks(link: AgentLink, texts: list[str]) -> None:
    cause = FailureCause("UMB413", f"cidr identifiers that are no networks: {', '.join(texts)[:200]!r}")
    logger.warning("%s agent=%s: %s", cause.code, link.agent_id, cause.text, extra=cause.fields)
