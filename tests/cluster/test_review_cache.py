"""Positive token reviews are reused for a short time, never past the token's own end; all else is asked again."""

import asyncio
import base64
import json
from typing import Any

import pytest

from umbilical.cluster.review_cache import MAX_ENTRIES, ReviewCache
from umbilical.cluster.token_review import TokenRefused

NOW = 1_800_000_000.0


class Clock:
    """Both clocks of the cache, in step unless a test moves one."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.jump = 0.0

    def monotonic(self) -> float:
        return 500.0 + self.passed

    def wall(self) -> float:
        return NOW + self.passed + self.jump


class Reviewer:
    """Counts reviews; refuses the tokens that a test says, and answers when `gate` is open."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.refused: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def authenticate(self, token: str) -> None:
        self.tokens.append(token)
        await self.gate.wait()
        if token in self.refused:
            raise TokenRefused("not this one")


def jwt(claims: Any) -> str:
    """A token as the API server signs it, with a signature that nobody reads."""
    head, payload = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "RS256"}, claims)
    )
    return f"{head}.{payload}.c2ln"


def cached(seconds: float = 60.0) -> tuple[ReviewCache, Reviewer, Clock]:
    reviewer, clock = Reviewer(), Clock()
    return ReviewCache(reviewer, seconds, clock.monotonic, clock.wall), reviewer, clock


HOUR = jwt({"exp": NOW + 3600, "sub": "a"})


async def test_a_reviewed_token_is_not_reviewed_again_for_a_minute() -> None:
    cache, reviewer, clock = cached()
    for passed, reviews in ((0.0, 1), (59.9, 1), (60.0, 2), (119.0, 2), (120.1, 3)):
        clock.passed = passed
        await cache.authenticate(HOUR)
        assert len(reviewer.tokens) == reviews, passed


async def test_a_review_is_never_reused_past_the_end_of_the_token() -> None:
    token = jwt({"exp": NOW + 10})
    cache, reviewer, clock = cached()
    await cache.authenticate(token)
    clock.passed = 9.9
    await cache.authenticate(token)
    assert len(reviewer.tokens) == 1
    clock.passed = 10.0
    await cache.authenticate(token)
    await cache.authenticate(token)
    assert len(reviewer.tokens) == 3


async def test_a_clock_that_is_set_forward_ends_tokens_too() -> None:
    cache, reviewer, clock = cached()
    await cache.authenticate(HOUR)
    clock.jump = 3600.0
    await cache.authenticate(HOUR)
    assert len(reviewer.tokens) == 2


async def test_another_token_is_another_review() -> None:
    cache, reviewer, _ = cached()
    for token in (HOUR, jwt({"exp": NOW + 3600, "sub": "b"}), HOUR + "x"):
        await cache.authenticate(token)
    assert len(reviewer.tokens) == 3


@pytest.mark.parametrize(
    "token",
    [
        *("", "opaque", "a.b", "a.!!.c", "a.é.c", "a.AAA.c", jwt({}), jwt([1]), jwt({"exp": None})),
        *(jwt({"exp": value}) for value in ("1900000000", True, float("nan"), float("inf"), 10**400)),
        "a." + "W1tb" * 20_000 + ".c",
    ],
    ids=lambda token: token[-24:],
)
async def test_a_token_whose_end_cannot_be_read_is_reviewed_every_time(token: str) -> None:
    cache, reviewer, _ = cached()
    await cache.authenticate(token)
    await cache.authenticate(token)
    assert len(reviewer.tokens) == 2


async def test_a_refusal_is_not_kept_and_ends_no_earlier_answer() -> None:
    cache, reviewer, clock = cached()
    reviewer.refused.add(HOUR)
    for _ in range(2):
        with pytest.raises(TokenRefused, match="not this one"):
            await cache.authenticate(HOUR)
    reviewer.refused.clear()
    await cache.authenticate(HOUR)
    assert len(reviewer.tokens) == 3
    reviewer.refused.add(HOUR)
    clock.passed = 60.0
    with pytest.raises(TokenRefused):
        await cache.authenticate(HOUR)


async def test_reviews_of_one_token_at_the_same_time_are_one_and_all_get_its_answer() -> None:
    cache, reviewer, _ = cached()
    for refused in (set[str](), {"opaque"}):
        reviewer.refused = refused
        reviewer.tokens.clear()
        reviewer.gate.clear()
        asked = [asyncio.ensure_future(cache.authenticate("opaque")) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reviewer.gate.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(answer, TokenRefused) for answer in answers] == [bool(refused)] * 5
        assert len(reviewer.tokens) == 1


async def test_who_gives_up_leaves_the_review_to_the_others() -> None:
    cache, reviewer, _ = cached()
    reviewer.gate.clear()
    first, second = (asyncio.ensure_future(cache.authenticate(HOUR)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    reviewer.gate.set()
    await second
    assert first.cancelled()
    assert len(reviewer.tokens) == 1


async def test_a_refusal_that_nobody_waits_for_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    cache, reviewer, _ = cached()
    reviewer.refused.add("opaque")
    reviewer.gate.clear()
    asked = asyncio.ensure_future(cache.authenticate("opaque"))
    await asyncio.sleep(0)
    asked.cancel()
    reviewer.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    del asked
    assert caplog.messages == []


async def test_entries_are_bounded_and_the_oldest_goes_first() -> None:
    cache, reviewer, _ = cached()
    tokens = [jwt({"exp": NOW + 3600, "sub": number}) for number in range(MAX_ENTRIES + 1)]
    for token in tokens:
        await cache.authenticate(token)
    await cache.authenticate(tokens[1])
    assert len(reviewer.tokens) == MAX_ENTRIES + 1
    await cache.authenticate(tokens[0])
    assert len(reviewer.tokens) == MAX_ENTRIES + 2


async def test_the_cache_holds_no_token() -> None:
    cache, _, _ = cached()
    await cache.authenticate(HOUR)
    assert HOUR not in repr(vars(cache))
