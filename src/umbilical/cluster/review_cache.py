"""Reuses positive token reviews for a short time: after a restart of the network or of a server's neighbours thousands
of agents connect again with the token that was reviewed a moment ago.

Only what the API answered is reused, and only a yes. The price: a token that was revoked is accepted for up to
`seconds` more (docs/security.md).
"""

import asyncio
import base64
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol

MAX_SECONDS: Final = 60.0
MAX_ENTRIES: Final = 16_384
"""About 4 MB. A server has memory for fewer agents."""


class Reviewer(Protocol):
    async def authenticate(self, token: str) -> None:
        """Return for a valid token, within a time limit; raise otherwise."""


class ReviewCache:
    """Implements `AgentAuthenticator` of `tunnel.interfaces`, with another one behind it."""

    def __init__(
        self,
        reviewer: Reviewer,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reviewer: Final = reviewer
        self._seconds: Final = min(seconds, MAX_SECONDS)
        self._monotonic: Final = monotonic
        self._wall: Final = wall
        self._secret: Final = secrets.token_bytes(32)
        """Key of the digests, so that a dump of the memory does not show which token was here."""
        self._ends: Final[dict[bytes, tuple[float, float]]] = {}
        """By digest, oldest first: when the answer ends, by the monotonic clock, and the token itself, by the wall."""
        self._under_way: Final[dict[bytes, asyncio.Task[None]]] = {}

    async def authenticate(self, token: str) -> None:
        digest = hmac.digest(self._secret, token.encode("utf-8", "surrogatepass"), "sha256")
        if self._is_known(digest):
            return
        review = self._under_way.get(digest)
        if review is None:
            review = asyncio.get_running_loop().create_task(self._review(digest, token))
            self._under_way[digest] = review
            review.add_done_callback(_retrieve)
        # The review goes on for the others, and ends within the client's timeout.
        await asyncio.shield(review)

    def _is_known(self, digest: bytes) -> bool:
        answer_end, token_end = self._ends.get(digest, (0.0, 0.0))
        return self._monotonic() < answer_end and self._wall() < token_end

    async def _review(self, digest: bytes, token: str) -> None:
        asked_at = self._monotonic()
        try:
            await self._reviewer.authenticate(token)
        finally:
            del self._under_way[digest]
        token_end = expiry(token)
        if token_end is not None:
            self._keep(digest, (asked_at + self._seconds, token_end))

    def _keep(self, digest: bytes, ends: tuple[float, float]) -> None:
        self._ends.pop(digest, None)
        now = self._monotonic()
        while self._ends:
            oldest = next(iter(self._ends))
            if self._ends[oldest][0] > now and len(self._ends) < MAX_ENTRIES:
                break
            del self._ends[oldest]
        self._ends[digest] = ends


def expiry(token: str) -> float | None:
    """Return the `exp` claim of a JWT, in seconds since 1970; None if there is none. The signature is not checked."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        end = claims["exp"]
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            return None
        return float(end)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def _retrieve(review: asyncio.Task[None]) -> None:
    """Keep asyncio from logging a refusal that nobody waits for any more."""
    if not review.cancelled():
        review.exception()
