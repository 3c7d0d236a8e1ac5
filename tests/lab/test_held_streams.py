"""Streams that are held: told when they open, when and how they end, and whether they lived."""

import contextlib
import io
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.labs import wait_until
from tests.support.scripted_peer import head, scripted

from umbilical.lab.held_streams import Moment, Told, main, read_told
from umbilical.lab.proxied_calls import write_ways
from umbilical.lab.proxy_client import Kind, Way

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
BEGINNING = b"HTTP/1.1 200 OK\r\n\r\ntick\n"


def _hold(kind: Kind, script: Callable[[socket.socket], None], stop: Path, until: Moment) -> list[Told]:
    """Hold one stream until something was told of it, then let it go."""
    out = io.StringIO()
    with scripted(script) as proxy, contextlib.redirect_stdout(out):
        ways = write_ways({"one": Way(kind, proxy, "here", 80)})
        thread = threading.Thread(target=main, args=([str(stop), ways],), daemon=True)
        thread.start()
        wait_until(lambda: until.value in [told.moment for told in read_told(out.getvalue())])
        stop.touch()
        thread.join(60)
    assert not thread.is_alive()
    return read_told(out.getvalue())


def test_a_stream_that_its_proxy_ends_is_told(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(ESTABLISHED)
        assert head(stream).startswith(b"GET /ticks ")
        stream.sendall(BEGINNING)

    opened, ended = _hold(Kind.CONNECT, script, tmp_path / "stop", Moment.ENDED)
    assert (opened.moment, ended.moment) == ("opened", "ended")
    assert ended.at >= opened.at
    assert ended.how == "the proxy ended it"


def test_a_stream_that_lives_is_told_with_the_moment_it_was_last_heard(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(ESTABLISHED)
        head(stream)
        stream.sendall(BEGINNING)
        assert stream.recv(1) == b"", "the client goes, and says nothing before"

    opened, lived = _hold(Kind.CONNECT, script, tmp_path / "stop", Moment.OPENED)
    assert lived.moment == "lived"
    assert lived.at >= opened.at


def test_a_request_that_waits_tells_the_cause_that_the_proxy_gave(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        assert head(stream).startswith(b"GET http://here:80/never ")
        stream.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\nUMB507")

    *_, ended = _hold(Kind.PLAIN, script, tmp_path / "stop", Moment.ENDED)
    assert ended.how == "Refused: 502 Bad Gateway: UMB507"


def test_a_stream_that_cannot_be_opened_is_told_as_ended(tmp_path: Path) -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\nUMB507")

    (ended,) = _hold(Kind.CONNECT, script, tmp_path / "stop", Moment.ENDED)
    assert ended.moment == "ended"
    assert "503 Service Unavailable" in ended.how
