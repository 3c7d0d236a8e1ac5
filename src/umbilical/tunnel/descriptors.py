"""Open files: the limit of this process, shares of it that strangers cannot use up, and the log of a shortage.

The kernel gives the lowest free number to each new file. While the numbers at the top are refused to a purpose, they
stay free for the others: no count of open files is needed.
"""

import errno
import logging
import os
import resource
from typing import Final

from umbilical.tunnel.causes import FailureCause
from umbilical.tunnel.loop import Handler, Loop

logger = logging.getLogger(__name__)

OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
HEALTH_FILES: Final = 16
"""Kept for health, metrics, certificate files and lookups."""
AGENT_FILES: Final = 8
"""Kept for agents: one can connect again while clients hold all other files."""
CLIENT_FILES: Final = 128
"""Kept for clients: connections to the port for agents do not get them."""
UNWATCHED_FILES: Final = 64
"""More than a daemon has open beside the sockets that its loop watches: standard streams, epoll, lookups."""
OVER_SECONDS: Final = 2.0
"""A shortage is over after so long without a refusal; then one that flickers is one line, not many."""


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one, as Go's runtime does; keep it where that is forbidden."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # an unlimited hard limit above fs.nr_open


def limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


class FileShares:
    """From which number on files are refused, by purpose. Less with a low limit, so that all have some."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        health = min(HEALTH_FILES, limit >> 3)
        agents = min(AGENT_FILES, limit >> 4)
        clients = min(CLIENT_FILES, limit >> 2)
        self.for_anything: Final = limit - health
        """Only health gets this number and those above."""
        self.for_clients: Final = limit - health - agents
        self.for_strangers: Final = limit - health - agents - clients


class Shortage:
    """Logs one line when files run short, and one when they suffice again."""

    def __init__(self) -> None:
        self.refusals = 0
        """Of the current shortage."""
        self._since = 0.0
        self._refused_at = 0.0

    def refused(self, what: str, now: float) -> bool:
        """A connection waits or fails for want of a file. True: call `seconds_left` after OVER_SECONDS."""
        self._refused_at = now
        self.refusals += 1
        if self.refusals > 1:
            return False
        self._since = now
        cause = FailureCause("UMB420", f"{what}; the limit of open files is {limit()}")
        logger.warning("%s open files run short: %s", cause.code, cause.text, extra=cause.fields)
        return True

    def seconds_left(self, now: float) -> float:
        """When to call again; 0 if the shortage is over."""
        left = self._refused_at + OVER_SECONDS - now
        if left > 0:
            return left
        seconds = self._refused_at - self._since
        logger.info(
            "open files suffice again after %.1f s: connections waited or failed %d times", seconds, self.refusals
        )
        self.refusals = 0
        return 0.0


class FileWatch(Handler):
    """Says whether a file below a number is free, and what becomes of those that get none."""

    def __init__(self, loop: Loop) -> None:
        self._loop: Final = loop
        self._shortage: Final = Shortage()
        self.shares = FileShares(limit())

    @property
    def refusals(self) -> int:
        return self._shortage.refusals

    def is_free_below(self, number: int, like: int) -> bool:
        """`like` is any open file. Counts only near the limit: the exact answer takes two system calls."""
        if self._loop.watched() + UNWATCHED_FILES < number:
            return True
        try:
            lowest_free = os.dup(like)
        except OSError:
            return False
        os.close(lowest_free)
        return lowest_free < number

    def refused(self, what: str) -> None:
        if self._shortage.refused(what, self._loop.now):
            self._loop.after(OVER_SECONDS, self)

    def on_timer(self) -> None:
        left = self._shortage.seconds_left(self._loop.now)
        if left > 0:
            self._loop.after(left, self)
        else:
            self.shares = FileShares(limit())  # somebody may have raised the limit

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error in the watch of open files: %r", error)
