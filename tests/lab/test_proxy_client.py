"""The lab's own client of proxies, byte by byte; calls without end, and streams that are held."""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.labs import wait_until
from tests.support.scripted_peer import exactly, head, scripted

from umbilical.lab.proxy_client import ProxyProtocol, ProxyRoute, RouteRefused, get, open_route
from umbilical.lab.through_proxies import (
    StreamEvent,
    StreamMoment,
    call,
    main,
    read_calls,
    read_events,
    read_routes,
    write_routes,
)

NAME = "lab-service.lab.svc.cluster.local"
GREETING = b"\x05\x01\x00"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """One answer after the other to whatever is asked, the last one for ever."""
    left = list(answers)

    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(left.pop(0) if len(left) > 1 else left[0])

    return script


def _socks(address: bytes, reply: bytes, seen: list[bytes]) -> Callable[[socket.socket], None]:
    def script(stream: socket.socket) -> None:
        assert exactly(stream, 3) == GREETING
        stream.sendall(b"\x05\x00")
        assert exactly(stream, 3) == GREETING
        assert exactly(stream, len(address)) == address
        stream.sendall(reply)
        if reply[1] == 0:
            seen.append(head(stream))
            stream.sendall(ANSWER)

    return script


@pytest.mark.parametrize(
    ("host", "address"),
    [
        (NAME, bytes([3, len(NAME)]) + NAME.encode() + b"\x1f\x90"),
        ("10.92.0.2", b"\x01\x0a\x5c\x00\x02\x1f\x90"),
        ("fd92::2", b"\x04\xfd\x92" + bytes(13) + b"\x02\x1f\x90"),
    ],
)
def test_socks_is_asked_for_names_and_addresses_of_both_families(host: str, address: bytes) -> None:
    seen: list[bytes] = []
    bound_to_ipv6 = b"\x05\x00\x00\x04" + bytes(18)
    with scripted(_socks(address, bound_to_ipv6, seen)) as proxy:
        assert get(ProxyRoute(ProxyProtocol.SOCKS5, proxy, host, 8080), "/healthz") == b"ok"
    assert seen[0].startswith(b"GET /healthz HTTP/1.1\r\n")


def test_what_socks_refuses_is_told_by_its_number_and_in_words() -> None:
    refusal = b"\x05\x05\x00\x01" + bytes(6)
    address = bytes([3, len(NAME)]) + NAME.encode() + b"\x1f\x90"
    way_of = _socks(address, refusal, [])
    with scripted(way_of) as proxy, pytest.raises(RouteRefused, match="SOCKS reply 5: connection refused"):
        get(ProxyRoute(ProxyProtocol.SOCKS5, proxy, NAME, 8080), "/healthz")

    def script(stream: socket.socket) -> None:
        exactly(stream, 3)
        stream.sendall(b"\x05\xff")

    with scripted(script) as proxy, pytest.raises(RouteRefused, match="authentication"):
        open_route(ProxyRoute(ProxyProtocol.SOCKS5, proxy, NAME, 8080))


def test_what_follows_the_answer_to_connect_is_the_endpoints_and_a_refusal_is_told() -> None:
    def script(stream: socket.socket) -> None:
        assert head(stream).startswith(f"CONNECT {NAME}:8443 HTTP/1.1\r\nHost: {NAME}:8443\r\n".encode())
        stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\nearly")

    with scripted(script) as proxy, open_route(ProxyRoute(ProxyProtocol.CONNECT, proxy, NAME, 8443)) as stream:
        assert exactly(stream, 5) == b"early"
    refuse = _answering(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\nUMB501 refused")
    with scripted(refuse) as proxy, pytest.raises(RouteRefused, match=r"502 Bad Gateway: .*UMB501 refused"):
        open_route(ProxyRoute(ProxyProtocol.CONNECT, proxy, NAME, 8443))


def test_a_plain_request_names_the_whole_url() -> None:
    seen: list[bytes] = []

    def script(stream: socket.socket) -> None:
        seen.append(head(stream))
        stream.sendall(ANSWER)

    with scripted(script) as proxy:
        assert get(ProxyRoute(ProxyProtocol.PLAIN, proxy, "fd92::2", 8080), "/healthz") == b"ok"
    assert seen[0].startswith(b"GET http://[fd92::2]:8080/healthz HTTP/1.1\r\nHost: [fd92::2]:8080\r\n")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", b"nonsense\r\n\r\n"])
def test_an_answer_that_breaks_off_is_an_error(answer: bytes) -> None:
    with scripted(_answering(answer)) as proxy, pytest.raises(OSError, match=r"incomplete answer|closed connection"):
        get(ProxyRoute(ProxyProtocol.PLAIN, proxy, NAME, 8080), "/healthz")


REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\nUMB507"


def test_a_call_tells_its_moments_and_who_refused_it() -> None:
    with scripted(_answering(ANSWER, REFUSAL)) as proxy:
        way = ProxyRoute(ProxyProtocol.PLAIN, proxy, "here", 80)
        before = time.monotonic()
        good, bad = call("plain", way), call("plain", way)
    assert before <= good.began <= good.ended <= bad.began <= bad.ended <= time.monotonic()
    assert good.failure == ""
    assert bad.failure == "RouteRefused: 503 Service Unavailable: UMB507"
    assert good.seconds == good.ended - good.began
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    assert "Connection refused" in call("socks5", ProxyRoute(ProxyProtocol.SOCKS5, (host, port), "here", 80)).failure


def test_calls_go_on_until_the_file_is_there(tmp_path: Path) -> None:
    stop, out = tmp_path / "stop", io.StringIO()
    with scripted(_answering(ANSWER)) as proxy, contextlib.redirect_stdout(out):
        ways = write_routes({"plain": ProxyRoute(ProxyProtocol.PLAIN, proxy, "here", 80)})
        thread = threading.Thread(target=main, args=(["call", str(stop), ways],), daemon=True)
        thread.start()
        wait_until(lambda: len(read_calls(out.getvalue())) >= 3)
        stop.touch()
        thread.join(60)
    assert not thread.is_alive()
    calls = read_calls(out.getvalue())
    assert [one.failure for one in calls[:3]] == ["", "", ""]
    assert {one.way for one in calls} == {"plain"}


def test_a_line_that_is_half_written_is_left_for_later_and_ways_survive_being_written() -> None:
    line = '{"way": "plain", "began": 1.0, "ended": 2.0, "failure": ""}\n'
    assert len(read_calls(f"a warning of Python\n{line}{line}{line[:20]}")) == 2
    ways = {
        "a": ProxyRoute(ProxyProtocol.SOCKS5, ("127.0.0.1", 1), "x", 2),
        "b": ProxyRoute(ProxyProtocol.CONNECT, ("::1", 1), "y", 3, Path("/ca")),
    }
    assert read_routes(write_routes(ways)) == ways


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
BEGINNING = b"HTTP/1.1 200 OK\r\n\r\ntick\n"


def _hold(
    kind: ProxyProtocol, script: Callable[[socket.socket], None], stop: Path, until: StreamMoment
) -> list[StreamEvent]:
    """Hold one stream until something was told of it, then let it go."""
    out = io.StringIO()
    with scripted(script) as proxy, contextlib.redirect_stdout(out):
        ways = write_routes({"one": ProxyRoute(kind, proxy, "here", 80)})
        thread = threading.Thread(target=main, args=(["hold", str(stop), ways],), daemon=True)
        thread.start()
        wait_until(lambda: until.value in [told.moment for told in read_events(out.getvalue())])
        stop.touch()
        thread.join(60)
    assert not thread.is_alive()
    return read_events(out.getvalue())


def test_a_stream_that_its_proxy_ends_is_told(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(ESTABLISHED)
        assert head(stream).startswith(b"GET /ticks ")
        stream.sendall(BEGINNING)

    opened, ended = _hold(ProxyProtocol.CONNECT, script, tmp_path / "stop", StreamMoment.ENDED)
    assert (opened.moment, ended.moment) == ("opened", "ended")
    assert ended.at >= opened.at
    assert ended.how == "the proxy closed it"


def test_a_stream_that_lives_is_told_with_the_moment_it_was_last_heard(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(ESTABLISHED)
        head(stream)
        stream.sendall(BEGINNING)
        assert stream.recv(1) == b"", "the client goes, and says nothing before"

    opened, lived = _hold(ProxyProtocol.CONNECT, script, tmp_path / "stop", StreamMoment.OPENED)
    assert lived.moment == "lived"
    assert lived.at >= opened.at


def test_a_request_that_waits_tells_the_cause_that_the_proxy_gave(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        assert head(stream).startswith(b"GET http://here:80/never ")
        stream.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\nUMB507")

    *_, ended = _hold(ProxyProtocol.PLAIN, script, tmp_path / "stop", StreamMoment.ENDED)
    assert ended.how == "RouteRefused: 502 Bad Gateway: UMB507"


def test_a_stream_that_cannot_be_opened_is_told_as_ended(tmp_path: Path) -> None:
    script = _answering(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\nUMB507")
    (ended,) = _hold(ProxyProtocol.CONNECT, script, tmp_path / "stop", StreamMoment.ENDED)
    assert ended.moment == "ended"
    assert "503 Service Unavailable" in ended.how
