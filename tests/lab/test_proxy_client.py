"""The lab's own client of proxies, held against RFC 1928 and RFC 9110 byte by byte."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.scripted_peer import exactly, head, scripted

from umbilical.lab.proxy_client import Kind, Refused, Way, get, open_way

NAME = "lab-service.lab.svc.cluster.local"
GREETING = b"\x05\x01\x00"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


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
        assert get(Way(Kind.SOCKS5, proxy, host, 8080), "/healthz") == b"ok"
    assert seen[0].startswith(b"GET /healthz HTTP/1.1\r\n")


def test_what_socks_refuses_is_told_by_its_number_and_in_words() -> None:
    refusal = b"\x05\x05\x00\x01" + bytes(6)
    address = bytes([3, len(NAME)]) + NAME.encode() + b"\x1f\x90"
    way_of = _socks(address, refusal, [])
    with scripted(way_of) as proxy, pytest.raises(Refused, match="SOCKS reply 5: connection refused"):
        get(Way(Kind.SOCKS5, proxy, NAME, 8080), "/healthz")


def test_a_socks_server_that_wants_a_password_is_told() -> None:
    def script(stream: socket.socket) -> None:
        exactly(stream, 3)
        stream.sendall(b"\x05\xff")

    with scripted(script) as proxy, pytest.raises(Refused, match="authentication"):
        open_way(Way(Kind.SOCKS5, proxy, NAME, 8080))


def test_what_comes_right_behind_the_answer_to_connect_is_the_endpoints() -> None:
    def script(stream: socket.socket) -> None:
        assert head(stream).startswith(f"CONNECT {NAME}:8443 HTTP/1.1\r\nHost: {NAME}:8443\r\n".encode())
        stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\nearly")

    with scripted(script) as proxy, open_way(Way(Kind.CONNECT, proxy, NAME, 8443)) as stream:
        assert exactly(stream, 5) == b"early"


def test_what_connect_refuses_is_told_with_status_and_body() -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\nUMB501 refused")

    with scripted(script) as proxy, pytest.raises(Refused, match=r"502 Bad Gateway: .*UMB501 refused"):
        open_way(Way(Kind.CONNECT, proxy, NAME, 8443))


def test_a_plain_request_names_the_whole_url() -> None:
    seen: list[bytes] = []

    def script(stream: socket.socket) -> None:
        seen.append(head(stream))
        stream.sendall(ANSWER)

    with scripted(script) as proxy:
        assert get(Way(Kind.PLAIN, proxy, "fd92::2", 8080), "/healthz") == b"ok"
    assert seen[0].startswith(b"GET http://[fd92::2]:8080/healthz HTTP/1.1\r\nHost: [fd92::2]:8080\r\n")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", b"nonsense\r\n\r\n"])
def test_an_answer_that_breaks_off_is_an_error(answer: bytes) -> None:
    def script(stream: socket.socket) -> None:
        head(stream)
        stream.sendall(answer)

    with scripted(script) as proxy, pytest.raises(OSError, match=r"no whole answer|closed connection"):
        get(Way(Kind.PLAIN, proxy, NAME, 8080), "/healthz")


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("authority", [None, Path("/etc/ca.crt")])
def test_a_way_is_the_same_after_it_was_written_and_read(kind: Kind, authority: Path | None) -> None:
    way = Way(kind, ("127.0.0.1", 1080), NAME, 8443, authority)
    assert Way.from_json(json.loads(json.dumps(way.to_json()))) == way
