"""Lines in the server's log about dials, tunnels and agents.

The first failure of a kind is logged at once, later ones as a count, so that a storm is a few lines.
"""

import logging
from typing import Final

from umbilical.konnectivity.commands import ReportHealth, ReportRedial
from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.konnectivity.links import AgentLink, Tunnel
from umbilical.tunnel.causes import NEXT, FailureCause, log_fields

logger = logging.getLogger(__name__)
tunnels = logging.getLogger("umbilical.tunnels")

REPEAT_SECONDS: Final = 30.0
"""A kind that goes on is logged again after this long."""
ARRIVAL_SECONDS: Final = 1.0
"""For Connect streams on one connection, of which an honest agent opens one."""
MAX_KINDS: Final = 1024
"""A bound, since kinds include the agent or the endpoint, which come and go."""
MAX_KIND_CHARACTERS: Final = 200
"""Of a kind that is kept: peers choose agent IDs and addresses, of any length."""
MAX_LINES_PER_SECOND: Final = 100
"""Of all kinds, since a peer can vary its kind, e.g. its address in an IPv6 network. A rack that fails is fewer."""


class LogThrottle:
    """Keeps the same line from being logged again and again; the next of its kind has the number of those between."""

    def __init__(self, repeat_seconds: float = REPEAT_SECONDS) -> None:
        self._repeat_seconds = repeat_seconds
        self._logged: dict[str, tuple[float, int]] = {}
        """Time of the last line and number of lines since, by kind; the least recently used first."""
        self._second = 0.0
        self._lines_in_second = 0

    def due(self, kind: str, now: float) -> int | None:
        """How many were dropped since this kind was last logged; None: log nothing now."""
        kind = kind[:MAX_KIND_CHARACTERS]
        logged_at, dropped = self._logged.pop(kind, (now - self._repeat_seconds, 0))
        if len(self._logged) >= MAX_KINDS:
            del self._logged[next(iter(self._logged))]
        if now - logged_at < self._repeat_seconds or self._is_exhausted(now):
            self._logged[kind] = (logged_at, dropped + 1)
            return None
        self._logged[kind] = (now, 0)
        return dropped

    def _is_exhausted(self, now: float) -> bool:
        if now - self._second >= 1.0:
            self._second = now
            self._lines_in_second = 0
        self._lines_in_second += 1
        return self._lines_in_second > MAX_LINES_PER_SECOND

    def more(self, kind: str, now: float) -> str | None:
        """Like `due`, as text for the end of the line; None: log nothing now."""
        dropped = self.due(kind, now)
        return f" ({dropped:,} more since the last such line)" if dropped else None if dropped is None else ""


class DialNotices:
    def __init__(self) -> None:
        self._throttle: Final = LogThrottle()

    def refused(self, code: str, address: str, agent: str, text: str, now: float) -> None:
        """A client's dial failed: a kind per endpoint where the endpoint failed, else a kind per agent."""
        if code == "UMB401" and address == PROBE_ADDRESS:
            return  # a check of our own whether an agent answers, and one did
        about = address if code in ("UMB401", "UMB402", "UMB404") else agent
        self._log(code, about, f"dial of {address} failed agent={agent}: {text}", now)

    def _log(self, code: str, about: str, text: str, now: float) -> None:
        more = self._throttle.more(f"{code} {about}", now)
        if more is not None:
            logger.warning("%s %s%s", code, text, more, extra=log_fields(code, NEXT[code]))


def report_health(command: ReportHealth) -> None:
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


def report_redial(command: ReportRedial) -> None:
    """At debug level only: an agent that is lost may leave a thousand dials, and each tunnel's line shows it too."""
    tunnel = command.tunnel
    logger.debug(
        "dial goes to another agent dial=%d target=%s from=%s to=%s: %s",
        tunnel.dial_id,
        tunnel.address,
        command.left.agent_id,
        _agent_id(tunnel),
        command.cause,
    )


def report_networks(link: AgentLink, texts: list[str], more: str) -> None:
    cause = FailureCause("UMB413", f"cidr identifiers that are not networks: {', '.join(texts)[:200]!r}")
    logger.warning("%s agent=%s: %s%s", cause.code, link.agent_id, cause.text, more, extra=cause.fields)


def report_tunnel(tunnel: Tunnel, now: float, cause: str, code: str = "") -> None:
    """Write the one log line of a tunnel; `code` where it failed."""
    if tunnel.reported:
        return
    tunnel.reported = True
    up, down = tunnel.client.byte_counts()
    redials = f" redials={len(tunnel.links_before)}" if tunnel.links_before else ""
    tunnels.info(
        'tunnel dial=%d connection=%d client="%s" agent=%s target=%s up=%d down=%d ms=%d%s end="%s"',
        tunnel.dial_id,
        tunnel.connection_id,
        tunnel.client.identity() or "-",
        _agent_id(tunnel),
        tunnel.address,
        up,
        down,
        int((now - tunnel.asked_at) * 1000),
        f"{redials} code={code}" if code else redials,
        cause,
    )


def client_stalled(tunnel: Tunnel | None, waiting: int) -> None:
    if tunnel is not None:
        text = f"client reads nothing, {waiting} bytes wait for it; its agent pauses this tunnel, others go on"
        _warn_slow(tunnel, text)


def client_stuck(tunnel: Tunnel, text: str) -> None:
    _warn_slow(tunnel, f"tunnel closed: {text}")


def _warn_slow(tunnel: Tunnel, text: str) -> None:
    cause = FailureCause("UMB403", text)
    logger.warning(
        "%s dial=%d connection=%d agent=%s target=%s: %s",
        cause.code,
        tunnel.dial_id,
        tunnel.connection_id,
        _agent_id(tunnel),
        tunnel.address,
        text,
        extra=cause.fields,
    )


def _agent_id(tunnel: Tunnel) -> str:
    return tunnel.link.agent_id if tunnel.link is not None else "-"
