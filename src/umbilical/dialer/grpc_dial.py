"""A dial through a server in mode grpc: the packets' answers as streams or as a reason."""

import asyncio
import time

from umbilical.dialer import causes
from umbilical.dialer.connect import ENDPOINTS_OWN, broken
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.grpc_layer import GrpcLayer
from umbilical.dialer.trace import Trace


async def dial(layer: GrpcLayer, server: str, endpoint: str, seconds: float, trace: Trace | None) -> None:
    """Return when the layer leads to the endpoint. Raises DialFailed; the layer is then the caller's to abort."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            await layer.dial(endpoint)
    except TimeoutError:
        text = f"no word on the dial within {seconds:g} s from the server or its agent"
        failure: DialFailed | None = DialFailed(Reason.SERVER, server, text)
    else:
        failure = _failure(layer, server, endpoint)
    spent = time.monotonic() - started
    if failure is not None:
        if trace is not None:
            trace.failed("dial", spent, endpoint, failure.text)
        raise failure
    if trace is not None:
        trace.passed("dial", spent, endpoint)


def _failure(layer: GrpcLayer, server: str, endpoint: str) -> DialFailed | None:
    call = layer.call
    if call.answer is not None:
        if not call.answer.error:
            return None
        reason = causes.reason_of_text(call.answer.error)
        return DialFailed(reason, endpoint if reason in ENDPOINTS_OWN else server, call.answer.error)
    if call.connection.failure is not None:
        return DialFailed(Reason.PROTOCOL, server, f"no HTTP/2: {call.connection.failure.message}")
    if layer.error is not None:
        return broken(layer.error, server)
    text = call.end or "the server ended the stream without an answer"
    return DialFailed(causes.reason_of_stream_end(text), server, text)
