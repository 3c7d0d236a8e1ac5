"""The SOCKS5 proxy and its process: a client's handshake, a dial, the reply by its result, and the relay.

Credentials are lines of USER:PASSWORD in a file, read again when it changes and never printed. If the changed file is
invalid, the previous credentials stay in use.
"""

import asyncio
import hashlib
import logging
import socket
import time
from pathlib import Path
from typing import Final

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.streams import Opener, Streams
from umbilical.fault import StartupError
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.metrics import OK, ProxyMetrics
from umbilical.proxies.process import MakeTunnel, run_proxy, tunnel_of
from umbilical.proxies.relay import RelayLimits, log_tunnel, peer_of, relay
from umbilical.proxies.settings import ListenerSettings, Socks5Settings
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.certificates import file_stamp
from umbilical.tunnel.notices import LogThrottle
from umbilical.tunnel.time_limit import time_limit
from umbilical.wire import socks5
from umbilical.wire.errors import ProtocolViolation

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1 << 20
MAX_PART_BYTES: Final = 255
"""RFC 1929: one byte for the length."""
_NOBODY: Final = hashlib.sha256(b"").digest()


class Socks5Credentials:
    def __init__(self, path: Path) -> None:
        """Raises StartupError for an invalid file: a proxy must not start without its credentials."""
        self._path: Final = path
        self._stamp = file_stamp(path)
        self._digests = _read(path)

    def are_valid(self, username: bytes, password: bytes) -> bool:
        """Compare in constant time, also for unknown names."""
        from hmac import compare_digest

        self._look()
        expected = self._digests.get(username, _NOBODY)
        same = compare_digest(expected, hashlib.sha256(password).digest())
        return same and username in self._digests

    def _look(self) -> None:
        stamp = file_stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digests = _read(self._path)
        except StartupError as fault:
            logger.warning("%s %s: %s; the previous credentials stay in use", fault.code, fault.what, fault.why)
        else:
            logger.info("credentials file was read again: %d users", len(self._digests))


def _read(path: Path) -> dict[bytes, bytes]:
    """Return digests of passwords by name, so that no password stays in memory."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _fault(path, error.strerror or str(error)) from None
    if len(text) > MAX_FILE_BYTES:
        raise _fault(path, f"it has more than {MAX_FILE_BYTES} bytes")
    return dict(_parse(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _parse(path: Path, number: int, line: bytes) -> tuple[bytes, bytes]:
    """Errors never contain the line: it may be a password."""
    username, colon, password = line.partition(b":")
    if not colon or not username or not password:
        raise _fault(path, f"line {number} is not USER:PASSWORD")
    if max(len(username), len(password)) > MAX_PART_BYTES:
        raise _fault(path, f"line {number} has more than {MAX_PART_BYTES} bytes before or after the colon")
    return username, hashlib.sha256(password).digest()


def _fault(path: Path, why: str) -> StartupError:
    remedy = "write one USER:PASSWORD per line, readable for this process only"
    return StartupError("UMB521", f"could not read credentials from {path}", why, remedy)


PROTOCOL: Final = "socks5"
READ_BYTES: Final = 4096
"""Read size during a handshake; data after it stays in the connection's buffer."""


class Socks5:
    """Implements `listener.ConnectionService`."""

    def __init__(
        self, settings: ListenerSettings, opener: Opener, metrics: ProxyMetrics, credentials: Socks5Credentials | None
    ) -> None:
        self._settings: Final = settings
        self._opener: Final = opener
        self._metrics: Final = metrics
        self._credentials: Final = credentials
        self._limits: Final = RelayLimits(settings.idle_seconds, settings.buffer_bytes)
        self._throttle: Final = LogThrottle()

    def drain(self) -> None:
        """Every connection is one request: none waits between requests."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handshake, seconds = socks5.SocksHandshake(self._credentials is not None), self._settings.handshake_seconds
        try:
            with time_limit(seconds):
                await self._shake_hands(handshake, reader, writer)
        except TimeoutError:
            self._refused(writer, socks5.BAD_REQUEST, f"handshake not complete after {seconds:g} s")
            raise
        except ProtocolViolation as violation:
            self._refused(writer, socks5.BAD_REQUEST, violation.message)
        if handshake.request is not None:
            await self._connect(handshake, handshake.request, (reader, writer))
        elif handshake.refusal is not None:
            self._refused(writer, handshake.refusal.kind, handshake.refusal.text)

    async def _shake_hands(
        self, handshake: socks5.SocksHandshake, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Return when the client has sent a request, was refused, or has disconnected."""
        while handshake.state not in (socks5.DIALLING, socks5.REFUSED):
            data = await reader.read(READ_BYTES)
            if not data:
                return
            handshake.feed(data)
            if handshake.state == socks5.CHECKING and self._credentials is not None:
                handshake.credentials_are(self._credentials.are_valid(handshake.username, handshake.password))
            writer.write(handshake.output())

    async def _connect(self, handshake: socks5.SocksHandshake, request: socks5.SocksRequest, client: Streams) -> None:
        began = time.monotonic()
        where = join_host_port(request.host, request.port)
        try:
            endpoint = await self._opener.open(request.host, request.port)
        except DialFailed as failure:
            self._metrics.requested(PROTOCOL, failure.reason.value)
            self._log_failure(failure, where)
            client[1].write(socks5.encode_reply(failure.report.socks_reply))
            return
        self._metrics.requested(PROTOCOL, OK)
        client[1].write(_success(endpoint[1]))
        if early := handshake.rest():
            endpoint[1].write(early)
            self._metrics.traffic.to_endpoint.total += len(early)
        ended = await relay(client, endpoint, self._limits, self._metrics.traffic)
        log_tunnel(client[1], where, ended, len(early), began)

    def _refused(self, writer: asyncio.StreamWriter, result: str, why: str) -> None:
        self._metrics.requested(PROTOCOL, result)
        self._log(f"UMB522 {result}", f"UMB522 client refused client={peer_of(writer)}: {why}", "UMB522", "")

    def _log_failure(self, failure: DialFailed, where: str) -> None:
        report = failure.report
        text = f"{report.code} dial of {where} failed: {report.words}: {failure}"
        self._log(f"{report.code} {where}", text, report.code, report.remedy)

    def _log(self, kind: str, text: str, code: str, remedy: str) -> None:
        """Log the first of a kind at once, then counts."""
        more = self._throttle.more(kind, time.monotonic())
        if more is not None:
            logger.warning("%s%s", text, more, extra=log_fields(code, remedy))


def _success(writer: asyncio.StreamWriter) -> bytes:
    """Return the reply with the connection's local address; zeros for a Unix socket."""
    found = writer.get_extra_info("sockname")
    if isinstance(found, tuple):
        family = socket.AF_INET6 if ":" in found[0] else socket.AF_INET
        try:
            return socks5.encode_reply(socks5.SUCCEEDED, socket.inet_pton(family, found[0]), found[1])
        except OSError:  # an address with a zone
            pass
    return socks5.encode_reply(socks5.SUCCEEDED)


async def run_socks5(settings: Socks5Settings, make_tunnel: MakeTunnel | None = None) -> int:
    """Serve until a signal; return the exit code. Raises StartupError."""
    credentials = None if settings.credentials is None else Socks5Credentials(settings.credentials)

    def make_service(opener: Opener, metrics: ProxyMetrics) -> Socks5:
        return Socks5(settings.listener, opener, metrics, credentials)

    return await run_proxy(settings.listener, make_tunnel or tunnel_of(settings.outbound), make_service, "SOCKS5")
