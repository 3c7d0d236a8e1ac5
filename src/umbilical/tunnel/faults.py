"""Bugs of ours that one tunnel or one peer meets: what broke is closed by its owner, and here it is counted and logged.

The trace of a bug is logged once; later ones count, with a short line now and then.
"""

import logging
from typing import Final, Protocol

from umbilical.tunnel.causes import NEXT, log_fields
from umbilical.tunnel.notices import LogThrottle

logger = logging.getLogger(__name__)

# Values of the label `place`.
EVENT: Final = "event"
"""A descriptor was ready."""
FLUSH: Final = "flush"
TIMER: Final = "timer"
COMMAND: Final = "command"
"""Something that the tunnel registry or the agent's session wanted done."""
DELIVERY: Final = "delivery"
"""Payload, a packet or the end of a stream, for one tunnel."""
ROOM: Final = "room"
"""A tunnel that waited for room got its turn."""
CLOSE: Final = "close"
"""Closing what broke, or one of several that end together."""
TASK: Final = "task"
"""A task of asyncio."""


PLACES: Final = (EVENT, FLUSH, TIMER, COMMAND, DELIVERY, ROOM, CLOSE, TASK)


class Breakable(Protocol):
    def on_crash(self, error: Exception) -> None:
        """Close what this object owns."""


class FaultLog:
    def __init__(self) -> None:
        self.counts: Final[dict[str, int]] = dict.fromkeys(PLACES, 0)
        self._traced: Final[set[str]] = set()
        """Bounded by our own code: a kind is a line of it."""
        self._throttle: Final = LogThrottle()

    def note(self, place: str, error: Exception, now: float) -> None:
        """Count it, and log it if it is new or due. Raises nothing."""
        self.counts[place] += 1
        try:
            self._log(place, error, now)
        except Exception:
            pass  # a log that is broken too must not end the process; the count shows it

    def _log(self, place: str, error: Exception, now: float) -> None:
        kind = f"{place}: {type(error).__name__} at {_line(error)}"
        more = self._throttle.more(kind, now)
        if more is None:
            return
        is_new = kind not in self._traced
        self._traced.add(kind)
        fields = log_fields("UMB425", NEXT["UMB425"])
        logger.error("UMB425 internal error in %s%s", kind, more, exc_info=error if is_new else None, extra=fields)

    def crash(self, broken: Breakable, place: str, error: Exception, now: float) -> None:
        """Note the error and have its owner close what broke. Raises nothing, whatever the owner does."""
        self.note(place, error, now)
        try:
            broken.on_crash(error)
        except Exception as second:
            self.note(CLOSE, second, now)


def _line(error: Exception) -> str:
    """Where it was raised."""
    trace = error.__traceback__
    if trace is None:
        return "unknown"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
