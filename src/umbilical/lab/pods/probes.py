"""Container probes: how one is run, and how many equal results make a verdict, as in the kubelet."""

import asyncio
import os
import signal
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from umbilical.lab.pods.spec import Execute, HttpGet, PodProbe, TcpSocket

USER_AGENT: Final = "kube-probe/umbilical"


@dataclass(frozen=True)
class PodProbeTarget:
    """How a probe reaches its container."""

    address: str
    ports: Mapping[str, int]
    enter: tuple[str, ...] = ()
    """Command prefix that enters the container."""
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class PodProbeResult:
    is_good: bool
    text: str


async def run_probe(probe: PodProbe, target: PodProbeTarget) -> PodProbeResult:
    """Run the probe once, with its timeout. Errors are results too."""
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            return await _run(probe.action, target)
    except TimeoutError:
        return PodProbeResult(False, f"no answer within {probe.timeout_seconds} s")
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return PodProbeResult(False, str(error) or type(error).__name__)


async def _run(action: HttpGet | TcpSocket | Execute, target: PodProbeTarget) -> PodProbeResult:
    if isinstance(action, HttpGet):
        return await _http(action, target)
    if isinstance(action, TcpSocket):
        return await _tcp(action, target)
    return await _execute(action, target)


async def _http(action: HttpGet, target: PodProbeTarget) -> PodProbeResult:
    host, port = action.host or target.address, _number(action.port, target)
    reader, writer = await asyncio.open_connection(host, port, ssl=_any_certificate() if action.is_tls else None)
    try:
        writer.write(_request(action, host, port))
        await writer.drain()
        line = await reader.readuntil(b"\n")
    finally:
        # Abort: a TLS peer without close_notify must not delay the probe.
        writer.transport.abort()
    return _http_result(line)


def _request(action: HttpGet, host: str, port: int) -> bytes:
    shown = f"[{host}]" if ":" in host else host
    headers = {"Host": f"{shown}:{port}", "User-Agent": USER_AGENT, "Accept": "*/*", "Connection": "close"}
    own = dict(action.headers)
    lines = [f"{name}: {value}" for name, value in {**headers, **own}.items()]
    return "\r\n".join([f"GET {action.path} HTTP/1.1", *lines, "", ""]).encode()


def _http_result(line: bytes) -> PodProbeResult:
    words = line.decode("latin-1").split()
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
        return PodProbeResult(False, "the answer is not HTTP")
    status = int(words[1])
    return PodProbeResult(200 <= status < 400, f"HTTP probe answered with statuscode: {status}")


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _tcp(action: TcpSocket, target: PodProbeTarget) -> PodProbeResult:
    _, writer = await asyncio.open_connection(action.host or target.address, _number(action.port, target))
    writer.transport.abort()
    return PodProbeResult(True, "connected")


async def _execute(action: Execute, target: PodProbeTarget) -> PodProbeResult:
    process = await asyncio.create_subprocess_exec(
        *target.enter,
        *action.command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(target.environment or os.environ),
        start_new_session=True,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            # The whole process group, or its output stays open. It may have just exited.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
    text = output.decode(errors="replace").strip()[:200]
    return PodProbeResult(process.returncode == 0, text or f"exit code {process.returncode}")


def _number(port: int | str, target: PodProbeTarget) -> int:
    if isinstance(port, int):
        return port
    if port in target.ports:
        return target.ports[port]
    if port.isdigit():
        return int(port)
    raise ValueError(f"the container has no port named {port!r}")


class PodProbeVerdict:
    """`is_good` is None until there were enough equal results."""

    def __init__(self, success_threshold: int, failure_threshold: int) -> None:
        self.is_good: bool | None = None
        self._thresholds = {True: success_threshold, False: failure_threshold}
        self._last: bool | None = None
        self._in_a_row = 0

    def saw(self, success: bool) -> bool | None:
        """Count one result and return the current verdict."""
        self._in_a_row = self._in_a_row + 1 if success == self._last else 1
        self._last = success
        if self._in_a_row >= self._thresholds[success]:
            self.is_good = success
        return self.is_good
