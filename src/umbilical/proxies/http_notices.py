"""What the HTTP proxy logs: a line per tunnel and per request, and refusals without letting a storm fill the disk.

Of a URL only host and port are told: what is behind them may be a secret.
"""

import asyncio
import logging
import time
from typing import Final

from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.http_reply import Refused
from umbilical.proxies.relay import Ending
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.dial_notices import Hush

logger = logging.getLogger(__name__)
tunnels = logging.getLogger("umbilical.tunnels")


class HttpNotices:
    def __init__(self) -> None:
        self._hush: Final = Hush()

    def refused(self, writer: asyncio.StreamWriter, refused: Refused) -> None:
        """The first of a kind at once, then how many there were."""
        answer = refused.answer
        unsaid = self._hush.due(f"{answer.code} {answer.what}", time.monotonic())
        if unsaid is not None:
            more = f" ({unsaid} more since the last such line)" if unsaid else ""
            text = "%s client=%s status=%d: %s%s"
            fields = log_fields(answer.code, answer.remedy)
            told = f"{answer.what}: {answer.why}"
            logger.warning(text, answer.code, _name(writer), answer.status, told, more, extra=fields)


def tunnel_ended(writer: asyncio.StreamWriter, target: str, ending: Ending, early: int, began: float) -> None:
    tunnels.info(
        'tunnel client=%s target=%s up=%d down=%d ms=%d end="%s"',
        *(_name(writer), target, ending.to_endpoint + early, ending.to_client),
        *(_milliseconds(began), ending.reason or "both sides ended"),
    )


def request_served(writer: asyncio.StreamWriter, method: str, target: str, began: float) -> None:
    tunnels.info("request client=%s target=%s method=%s ms=%d", _name(writer), target, method, _milliseconds(began))


def _milliseconds(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


def _name(writer: asyncio.StreamWriter) -> str:
    found = writer.get_extra_info("peername")
    return join_host_port(found[0], found[1]) if isinstance(found, tuple) else "unknown"
