"""What the server's log tells of its choice among agents: who is last choice and why, and dials that moved on."""

import logging

from umbilical.konnectivity.commands import TellHealth, TellRedial
from umbilical.konnectivity.routing import AgentLink
from umbilical.tunnel.causes import Cause

logger = logging.getLogger(__name__)


def tell_health(command: TellHealth) -> None:
    link = command.link
    if not link.sick:
        logger.info("agent is chosen again agent=%s: %s", link.agent_id, command.cause)
        return
    cause = Cause("UMB412", command.cause)
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
    cause = Cause("UMB413", f"cidr identifiers that are no networks: {', '.join(texts)[:200]!r}")
    logger.warning("%s agent=%s: %s", cause.code, link.agent_id, cause.text, extra=cause.fields)
