"""An asynchronous client of the Kubernetes API for JSON objects, with a timeout per request and a rate limit (a token
bucket, as client-go has by default). `ClientClock` holds time and randomness, so that tests control both."""

import asyncio
import json
import os
import random
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from umbilical.cluster.credentials import ApiCredentials
from umbilical.fault import ApiRefused, ApiUnreachable

if TYPE_CHECKING:
    import httpx2


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class ClientClock:
    now: Callable[[], datetime] = _utc_now
    """Wall time with time zone UTC, used in leases."""
    monotonic: Callable[[], float] = time.monotonic
    """Monotonic seconds, for latencies and rates."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    """In [0, 1)."""


# Defaults of client-go rest/config.go, used for --kubeconfig-qps=0 and --kubeconfig-burst=0.
DEFAULT_REQUESTS_PER_SECOND: Final = 5.0
DEFAULT_BURST: Final = 10
MOST_OPEN_REQUESTS: Final = 16
"""At once, watches not counted: the HTTP library looks at every connection of its pool for each request."""


class RateLimit:
    """Allows `burst` requests at once, then `requests_per_second`, first come, first served."""

    def __init__(self, requests_per_second: float = 0.0, burst: int = 0, clock: ClientClock | None = None) -> None:
        self._per_second = requests_per_second or DEFAULT_REQUESTS_PER_SECOND
        self._burst = burst or DEFAULT_BURST
        self._clock = clock or ClientClock()
        self._tokens = float(self._burst)
        self._filled_at = self._clock.monotonic()
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        """Wait until the next request may be sent. A negative rate means no limit, as in client-go."""
        if self._per_second < 0:
            return
        async with self._turn:
            self._refill()
            while self._tokens < 1:
                await self._clock.sleep((1 - self._tokens) / self._per_second)
                self._refill()
            self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now


Json = dict[str, Any]

REQUEST_SECONDS: Final = 10.0
# kube-apiserver sends a bookmark about once a minute; longer silence means a dead connection.
WATCH_SILENCE_SECONDS: Final = 90.0
# kube-apiserver 1.37 compresses the first events of a watch and each later one on its own (WatchListCompression): a
# series of gzip streams, of which httpx2 reads the first and drops the others.
_PLAIN: Final = {"Accept-Encoding": "identity"}
# Limit for error bodies in log lines.
MESSAGE_CHARACTERS: Final = 1000


class ApiClient:
    """Sends one request per call. Created by `make_client`; close it, or use it as a context manager."""

    def __init__(self, credentials: ApiCredentials, limit: RateLimit, request_seconds: float = REQUEST_SECONDS) -> None:
        self._credentials = credentials
        self._limit = limit
        self._open_requests = asyncio.Semaphore(MOST_OPEN_REQUESTS)
        self._request_seconds = request_seconds

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        accept: str | None = None,
        content_type: str | None = None,
    ) -> Json:
        """Send one request and return the JSON object of the answer.

        `content_type` is for patches; the default is JSON.

        Raises:
            ApiRefused: the API answered with an error status.
            ApiUnreachable: no answer, or not in time.
        """
        content = await self._send(method, path, query, body, accept, content_type)
        return _json_object(f"{method} {path}", content)

    async def get_text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Fetch text instead of an API object, e.g. a health page or a page behind the API server's proxy.

        Raises:
            ApiRefused: the API, or the server behind its proxy, answered with an error status.
            ApiUnreachable: no answer, or not in time.
        """
        return (await self._send("GET", path, query, None, "*/*", None)).decode(errors="replace")

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        accept: str | None,
        content_type: str | None,
    ) -> bytes:
        title = f"{method} {path}"
        headers = {
            name: value for name, value in (("Accept", accept), ("Content-Type", content_type)) if value is not None
        }
        with _mapped(title):
            async with asyncio.timeout(self._request_seconds):
                await self._limit.acquire()
                async with self._open_requests, self._credentials.client() as http:
                    response = await http.request(method, path, params=query, json=body, headers=headers)
        _check_status(title, response.status_code, response.content)
        return response.content

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch and iterate over its events (`type` and `object`) until the server ends it.

        Raises:
            ApiRefused: the watch was refused, or an ERROR event came, e.g. "resource version too old".
            ApiUnreachable: the connection failed or timed out.
        """
        title = f"WATCH {path}"
        async with (
            self._stream(title, path, {**query, "watch": "true"}) as response,
            aclosing(_events(title, response)) as events,
        ):
            yield events

    async def close(self) -> None:
        await self._credentials.close()

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _stream(self, title: str, path: str, query: Mapping[str, str]) -> "AsyncIterator[httpx2.Response]":
        import httpx2

        timeouts = httpx2.Timeout(self._request_seconds, read=WATCH_SILENCE_SECONDS)
        async with self._credentials.client() as http:
            request = http.build_request("GET", path, params=query, headers=_PLAIN, timeout=timeouts)
            with _mapped(title):
                async with asyncio.timeout(self._request_seconds):
                    await self._limit.acquire()
                    response = await http.send(request, stream=True)
            try:
                if response.status_code >= 400:
                    with _mapped(title):
                        await response.aread()
                    _check_status(title, response.status_code, response.content)
                yield response
            finally:
                await response.aclose()


def make_client(
    kubeconfig: Path | None,
    *,
    qps: float = 0.0,
    burst: int = 0,
    user_agent: str = "umbilical",
    request_seconds: float = REQUEST_SECONDS,
) -> ApiClient:
    """Create a client from a kubeconfig or the pod's service account. Raises ClusterError: invalid or missing."""
    return ApiClient(ApiCredentials(kubeconfig, user_agent, request_seconds), RateLimit(qps, burst), request_seconds)


@contextmanager
def _mapped(title: str) -> Iterator[None]:
    """Translate exceptions of the HTTP library."""
    from httpx2 import HTTPError
    from lightkube.core.exceptions import ConfigError

    try:
        yield
    except TimeoutError as error:
        raise ApiUnreachable(title, "no answer in time") from error
    except (HTTPError, ConfigError, OSError) as error:  # OSError: an unreadable token file
        raise ApiUnreachable(title, _root_cause(error)) from error


def _root_cause(error: BaseException) -> str:
    """Return the innermost error: "All connection attempts failed" hides e.g. "Connection refused"."""
    text = str(error) or type(error).__name__
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError | socket.gaierror):
            text = str(seen)
        elif isinstance(seen, OSError) and seen.errno is not None:
            text = os.strerror(seen.errno)
        seen = seen.__cause__ or seen.__context__
    return text


def _check_status(title: str, status: int, content: bytes) -> None:
    if status < 400:
        return
    try:
        answer = _json_object(title, content)
    except ApiUnreachable:
        # A proxy in between answers in HTML, a starting API server in plain text.
        raise ApiRefused(title, status, "", content.decode(errors="replace")[:MESSAGE_CHARACTERS]) from None
    raise _refusal(title, answer, status)


def _refusal(title: str, answer: Json, status: int) -> ApiRefused:
    """Read a Kubernetes `Status` object; every field is optional."""
    message = str(answer.get("message") or "no message")[:MESSAGE_CHARACTERS]
    return ApiRefused(title, int(answer.get("code") or status), str(answer.get("reason") or ""), message)


async def _events(title: str, response: "httpx2.Response") -> AsyncGenerator[Json, None]:
    with _mapped(title):
        async for line in response.aiter_lines():
            yield _watch_event(title, line)


def _watch_event(title: str, line: str) -> Json:
    event = _json_object(title, line.encode())
    content = event.get("object")
    if not isinstance(content, dict):
        raise ApiUnreachable(title, "a watch event had no object")
    if event.get("type") == "ERROR":
        raise _refusal(title, content, 500)
    return event


def _json_object(title: str, content: bytes) -> Json:
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise ApiUnreachable(title, "the answer is not JSON: is this a Kubernetes API?") from error
    if not isinstance(answer, dict):
        raise ApiUnreachable(title, "the answer is not a JSON object: is this a Kubernetes API?")
    return answer
