"""CONNECT: what is asked, and every shape of an answer, one byte at a time."""

import asyncio
import ssl
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.coroutines import play

from umbilical.dialer import connect
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.trace import Trace
from umbilical.wire.http1 import Http1RequestReader

OK = b"HTTP/1.1 200 Connection Established\r\n\r\n"


class Written(asyncio.WriteTransport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.octets = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.octets += bytes(data)

    def is_closing(self) -> bool:
        return True  # nothing is to be closed


def streams_to(transport: Written) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    return reader, asyncio.StreamWriter(transport, asyncio.StreamReaderProtocol(reader, loop=loop), reader, loop)


async def dialled(
    reply: bytes, *, endpoint: str = "a.b:1", step: int = 0, ends: bool = True, trace: Trace | None = None
) -> tuple[bytes, bytes]:
    """What was asked, and what is left in the reader; the reply comes `step` bytes at a time, or at once."""
    transport = Written()
    reader, writer = streams_to(transport)

    async def feed() -> None:
        for start in range(0, len(reply), step or len(reply) or 1):
            reader.feed_data(reply[start : start + (step or len(reply))])
            await asyncio.sleep(0)
        if ends:
            reader.feed_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        try:
            await connect.connect((reader, writer), "the-server", endpoint, 60.0, trace)
        except DialFailed as failure:
            raised: DialFailed | None = failure
        else:
            raised = None
    if raised is not None:
        raise raised
    return transport.octets, await reader.read() if ends else b""


def failure(reply: bytes, **more: Any) -> DialFailed:
    """What a dial with this reply must come to."""
    with pytest.raises(DialFailed) as caught:
        play(dialled(reply, **more))
    return caught.value


@pytest.mark.parametrize(
    ("host", "port", "endpoint"),
    [
        ("10.0.0.1", 443, "10.0.0.1:443"),
        ("fd00::7", 443, "[fd00::7]:443"),
        ("fe80::1%eth0", 22, "[fe80::1%25eth0]:22"),
        ("console.openshift-console.svc", 443, "console.openshift-console.svc:443"),
        ("under_score", 0, "under_score:0"),
        ("bücher.example", 80, "xn--bcher-kva.example:80"),
    ],
)
def test_the_request_names_the_endpoint_as_a_server_reads_it(host: str, port: int, endpoint: str) -> None:
    assert connect.authority_of(host, port) == endpoint
    asked, _ = play(dialled(OK, endpoint=endpoint))
    assert asked == f"CONNECT {endpoint} HTTP/1.1\r\nHost: {endpoint}\r\n\r\n".encode()
    request = Http1RequestReader().feed(asked)
    assert request is not None
    assert request.address == endpoint.replace("%25", "%")


@pytest.mark.parametrize("host", ["", "a b", "a\r\nX: y", "a/b", "a@b", "[::1]", "a\0b", "\udc80", "x" * 70 + "ü"])
def test_what_is_no_host_never_reaches_a_server(host: str) -> None:
    with pytest.raises(DialFailed) as caught:
        connect.authority_of(host, 80)
    assert caught.value.reason is Reason.NAME


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_a_mistake_of_the_program(port: int) -> None:
    with pytest.raises(ValueError, match="not within"):
        connect.authority_of("a.b", port)


@given(st.binary(max_size=200), st.integers(1, 50), st.sampled_from([b"\r\n", b"\n"]))
def test_whatever_follows_the_head_is_kept_however_it_comes(early: bytes, step: int, newline: bytes) -> None:
    head = newline.join((b"HTTP/1.1 200 OK", b"X-Any: thing", b"", b""))
    assert play(dialled(head + early, step=step))[1] == early


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 45\r\n\r\n",
        b"\r\n",
        b"Content-Length: many\r\n\r\n",
        b"content-length:  999\r\n\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ],
)
def test_the_body_of_a_refusal_is_its_cause(framing: bytes, step: int) -> None:
    reply = b"HTTP/1.1 502 Bad Gateway\r\n" + framing + b"dial tcp 1.2.3.4:5: connect: no route to host"
    told = failure(reply, step=step)
    assert (told.reason, told.hop) == (Reason.UNREACHABLE, "a.b:1")
    assert told.text == "dial tcp 1.2.3.4:5: connect: no route to host"


def test_a_body_that_never_ends_is_read_up_to_a_bound() -> None:
    told = failure(b"HTTP/1.1 500 X\r\n\r\n" + b"No agent available " + b"x" * 100_000, ends=False)
    assert (told.reason, told.hop) == (Reason.NO_AGENT, "the-server")
    assert len(told.text) <= connect.MAX_BODY_BYTES


def test_a_body_that_stops_in_the_middle_is_shown_as_far_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "BODY_SECONDS", 0.01)
    part = b"HTTP/1.1 502 X\r\nContent-Length: 500\r\n\r\ndial tcp: lookup a.b: no such"
    assert failure(part, ends=False).reason is Reason.NAME


def test_a_body_of_several_lines_or_with_control_characters_is_told_in_one() -> None:
    told = failure(b"HTTP/1.1 403 Forbidden\r\n\r\nno\r\n\tnever \x1b[31m\r\n")
    assert (told.reason, told.text) == (Reason.FORBIDDEN, "no never")


def test_without_a_body_the_status_line_is_all_that_is_known() -> None:
    told = failure(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
    assert (told.reason, told.text) == (Reason.PROTOCOL, "405 Method Not Allowed")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", Reason.SERVER),
        (b"HTTP/1.1 20", Reason.SERVER),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", Reason.SERVER),
        (b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00", Reason.PROTOCOL),
        (b"220 mail ready\r\n", Reason.PROTOCOL),
        (b"HTTP/2 200\r\n\r\n", Reason.PROTOCOL),
        (b"HTTP/1.1 2OO OK\r\n\r\n", Reason.PROTOCOL),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, Reason.PROTOCOL),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, Reason.PROTOCOL),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Reason.PROTOCOL),
        (b"HTTP/1.1 206 Partial Content\r\n\r\n", Reason.PROTOCOL),
    ],
)
def test_an_answer_that_is_none_has_its_reason(reply: bytes, reason: Reason) -> None:
    told = failure(reply)
    assert (told.reason, told.hop) == (reason, "the-server")


@given(st.binary(max_size=300))
def test_any_bytes_lead_to_a_tunnel_or_to_a_reason(reply: bytes) -> None:
    try:
        play(dialled(reply))
    except DialFailed:
        return
    assert reply.startswith(b"HTTP/1.")


async def test_of_two_headers_of_one_name_the_first_counts() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"HTTP/1.1 200 OK\r\nA: 1\r\na:2\r\nnone\r\n\r\n")
    assert (await connect.read_reply(reader)).headers == {"a": "1"}


async def broken(error: Exception | None, seconds: float = 60.0) -> DialFailed:
    """Of a dial whose stream fails so, or brings nothing."""
    reader, writer = streams_to(Written())
    if error is not None:
        reader.set_exception(error)
    with pytest.raises(DialFailed) as caught:
        await connect.connect((reader, writer), "the-server", "a.b:1", seconds, None)
    return caught.value


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ssl.SSLError(1, "[SSL] tlsv13 alert certificate required"), Reason.TLS),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), Reason.SERVER),
        (ConnectionResetError(104, "Connection reset by peer"), Reason.SERVER),
    ],
)
async def test_what_breaks_while_the_server_dials_has_its_reason(error: Exception, reason: Reason) -> None:
    assert (await broken(error)).reason is reason


async def test_a_server_that_says_nothing_is_given_up() -> None:
    told = await broken(None, 0.01)
    assert told.reason is Reason.SERVER
    assert "no word on the dial within 0.01 s" in told.text


def test_a_traced_dial_asks_for_it_and_tells_agent_and_dial_apart() -> None:
    trace = Trace()
    reply = b"HTTP/1.1 200 OK\r\nUmbilical-Agent: node-7\r\nUmbilical-Dial-Seconds: 0\r\n\r\n"
    asked, _ = play(dialled(reply, trace=trace))
    assert b"\r\nUmbilical-Trace: 1\r\n" in asked
    assert [(hop.name, hop.detail, hop.failure) for hop in trace.hops] == [
        ("agent", "node-7", ""),
        ("dial", "a.b:1", ""),
    ]
    assert trace.hops[1].seconds == 0.0


@pytest.mark.parametrize("seconds", [b"", b"soon", b"nan", b"-1", b"inf", b"1e99"])
def test_a_trace_survives_what_a_server_may_say_of_seconds(seconds: bytes) -> None:
    trace = Trace()
    play(dialled(b"HTTP/1.1 200 OK\r\nUmbilical-Dial-Seconds: " + seconds + b"\r\n\r\n", trace=trace))
    (hop,) = trace.hops
    assert hop.name == "dial"
    assert 0 <= hop.seconds < 60


def test_a_dial_that_failed_is_traced_to_where_it_did() -> None:
    refused, lost = Trace(), Trace()
    failure(b"HTTP/1.1 502 X\r\nUmbilical-Agent: node-7\r\n\r\nconnection refused", trace=refused)
    assert [(hop.name, hop.failure) for hop in refused.hops] == [("agent", ""), ("dial", "connection refused")]
    failure(b"", trace=lost)
    assert [(hop.name, bool(hop.failure)) for hop in lost.hops] == [("dial", True)]
