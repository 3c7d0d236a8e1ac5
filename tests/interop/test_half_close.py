"""Between our own programs the end of one direction is the end of one direction (fault C3), on both frontends."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.interop.endpoints import Recorder, endpoint, pattern
from tests.support.half_close import half_closing, rest_of
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import TunnelPki

MIB: Final = 1024 * 1024


@pytest.fixture(params=["uds", "tcp-mtls"])
def pair(request: pytest.FixtureRequest, pki: TunnelPki, tmp_path: Path) -> Iterator[TunnelPair]:
    running = TunnelPair(Shape("ours", "ours", "http-connect", request.param), pki, tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def digest_then_answer(sock: socket.socket) -> None:
    """Read the whole request, which only its end tells, then answer with its digest and twenty mebibytes."""
    digest = hashlib.sha256()
    while octets := sock.recv(1 << 16):
        digest.update(octets)
    sock.sendall(digest.hexdigest().encode() + pattern(20 * MIB))


def test_a_request_that_ends_is_answered_in_full(pair: TunnelPair) -> None:
    request = pattern(5 * MIB)
    with endpoint(digest_then_answer) as address, half_closing(pair.frontend(), address) as client:
        client.sendall(request)
        client.end()
        answer = rest_of(client)
    assert answer == hashlib.sha256(request).hexdigest().encode() + pattern(20 * MIB)


def test_an_upload_goes_on_behind_the_end_of_the_answer(pair: TunnelPair) -> None:
    taken = Recorder()

    def answer_first(sock: socket.socket) -> None:
        sock.sendall(b"go on")
        sock.shutdown(socket.SHUT_WR)
        taken(sock)

    with endpoint(answer_first) as address, half_closing(pair.frontend(), address) as client:
        assert rest_of(client) == b"go on"
        sender = threading.Thread(target=client.sendall, args=(bytes(20 * MIB),))
        sender.start()
        sender.join(60)
        client.end()
        assert taken.ends.get(timeout=60) == 20 * MIB
