"""Calls without end: each is told with its moments, until a file says that it is enough."""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.labs import wait_until
from tests.support.scripted_peer import head, scripted

from umbilical.lab.proxied_calls import call, main, read_calls, read_ways, write_ways
from umbilical.lab.proxy_client import Kind, Way

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\nUMB507"


def _answering(*answers: bytes) -> Callable[[socket.socket], None]:
    left = list(answers)

    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(left.pop(0))

    return script


def test_a_call_tells_its_moments_and_who_refused_it() -> None:
    with scripted(_answering(ANSWER, REFUSAL)) as proxy:
        way = Way(Kind.PLAIN, proxy, "here", 80)
        before = time.monotonic()
        good, bad = call("plain", way), call("plain", way)
    assert before <= good.began <= good.ended <= bad.began <= bad.ended <= time.monotonic()
    assert good.failure == ""
    assert bad.failure == "Refused: 503 Service Unavailable: UMB507"
    assert good.seconds == good.ended - good.began


def test_a_proxy_that_is_not_there_is_a_failure_and_no_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    assert "Connection refused" in call("socks5", Way(Kind.SOCKS5, (host, port), "here", 80)).failure


def test_calls_go_on_until_the_file_is_there(tmp_path: Path) -> None:
    stop, out = tmp_path / "stop", io.StringIO()

    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(ANSWER)

    with scripted(script) as proxy, contextlib.redirect_stdout(out):
        ways = write_ways({"plain": Way(Kind.PLAIN, proxy, "here", 80)})
        thread = threading.Thread(target=main, args=([str(stop), ways],), daemon=True)
        thread.start()
        wait_until(lambda: len(read_calls(out.getvalue())) >= 3)
        stop.touch()
        thread.join(60)
    assert not thread.is_alive()
    calls = read_calls(out.getvalue())
    assert [one.failure for one in calls[:3]] == ["", "", ""]
    assert {one.way for one in calls} == {"plain"}


def test_a_line_that_is_half_written_is_left_for_later() -> None:
    line = '{"way": "plain", "began": 1.0, "ended": 2.0, "failure": ""}\n'
    assert len(read_calls(f"a warning of Python\n{line}{line}{line[:20]}")) == 2


def test_ways_are_the_same_after_they_were_written_and_read() -> None:
    ways = {"a": Way(Kind.SOCKS5, ("127.0.0.1", 1), "x", 2), "b": Way(Kind.CONNECT, ("::1", 1), "y", 3, Path("/ca"))}
    assert read_ways(write_ways(ways)) == ways
