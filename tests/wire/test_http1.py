import re
from collections.abc import Iterator

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tunnel_pair import TunnelPair, upstream_pair

from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http1 import Http1Request, Http1RequestReader

KUBE_APISERVER = b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
DATE = b"Sun, 15 Nov 2026 11:07:01 GMT"


def parse(head: bytes) -> Http1Request:
    request = Http1RequestReader().feed(head)
    assert request is not None
    return request


def violation_of(head: bytes) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as caught:
        Http1RequestReader().feed(head)
    return caught.value


def reply_to(head: bytes) -> bytes:
    return http1.violation_reply(violation_of(head))


def test_the_request_of_kube_apiserver_is_parsed() -> None:
    request = parse(KUBE_APISERVER)
    assert (request.method, request.target, request.version) == ("CONNECT", "10.0.0.1:443", "HTTP/1.1")
    assert request.headers_host == "127.0.0.1"
    assert request.address == "10.0.0.1:443"
    assert request.end_offset == len(KUBE_APISERVER)


def test_bytes_behind_the_head_are_preserved() -> None:
    head = Http1RequestReader()
    assert parse(KUBE_APISERVER + b"early").end_offset == len(KUBE_APISERVER)
    assert head.feed(KUBE_APISERVER + b"early\n\n") is not None
    assert head.rest == b"early\n\n"


def test_a_head_that_came_before_is_not_parsed_again_and_a_small_limit_still_counts() -> None:
    head = b"CONNECT remembered.example:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    reader = Http1RequestReader()
    request = reader.feed(head)
    assert request is not None
    assert Http1RequestReader().feed(head) is request
    again = reader.feed(head + b"early")
    assert again is not None
    assert (again.address, reader.rest) == (request.address, b"early")
    assert reader.feed(head) is request
    assert reader.rest == b""
    with pytest.raises(ProtocolViolation):
        Http1RequestReader(limit=20).feed(head)


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT a.example:443 HTTP/1.1\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nUmbilical-Trace: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT " + b"a" * 300 + b":443 HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_other_heads_are_forgotten(head: bytes) -> None:
    assert Http1RequestReader().feed(head) is not Http1RequestReader().feed(head)


def test_the_memory_of_heads_is_bounded() -> None:
    for port in range(1, 2 * http1.MOST_REMEMBERED):
        Http1RequestReader().feed(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a\r\n\r\n" % port)
    assert len(http1._remembered) <= http1.MOST_REMEMBERED


def test_the_first_blank_line_ends_the_head_whatever_follows_it() -> None:
    head = Http1RequestReader()
    assert head.feed(b"CONNECT a:1 HTTP/1.1\r\n\n\r\n") is not None
    assert head.rest == b"\r\n"


ADDRESSES = [
    (b"CONNECT a:1 HTTP/1.1\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.0\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.2\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\n\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\nHost: b\r\n\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\r\nHost: b:2\r\n\r\n", "a:1"),
    (b"CONNECT  HTTP/1.1\r\nHost: b:2\r\n\r\n", "b:2"),
    (b"CONNECT /path HTTP/1.1\r\nHost: b:2\r\n\r\n", "b:2"),
    (b"CONNECT ? HTTP/1.1\r\nHost: b:2\r\n\r\n", "b:2"),
    (b"CONNECT /path HTTP/1.1\r\n\r\n", ""),
    (b"CONNECT a HTTP/1.1\r\n\r\n", "a"),
    (b"CONNECT :1 HTTP/1.1\r\n\r\n", ":1"),
    (b"CONNECT [::1]:1 HTTP/1.1\r\n\r\n", "[::1]:1"),
    (b"CONNECT [fe80::1%25eth0]:1 HTTP/1.1\r\n\r\n", "[fe80::1%eth0]:1"),
    (b"CONNECT user@a:1/x?y HTTP/1.1\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\r\nx: y\r\n folded\r\nz:\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\r\nx: \xff\t\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\r\nHost:\r\n\r\n", "a:1"),
    (b"CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "a:1"),
]


@pytest.mark.parametrize(("head", "address"), ADDRESSES)
def test_the_target_is_the_address_and_host_is_the_fallback(head: bytes, address: str) -> None:
    request = parse(head)
    assert request.address == address
    assert request.end_offset == len(head)


BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
)


GARBAGE = [
    b"\x16\x03\x01\r\n\r\n",
    b"garbage\r\n\r\n",
    b"\r\nCONNECT a:1 HTTP/1.1\r\n\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"CO\x01NECT a:1 HTTP/1.1\r\n\r\n",
    b"CONNECT a:1  HTTP/1.1\r\n\r\n",
    b"CONNECT a:1 x HTTP/1.1\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1 \r\n\r\n",
    b"CONNECT a:1 HTTP/x.1\r\n\r\n",
    b"CONNECT a:1 HTTP/1\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n bad: x\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nbad header\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n: v\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nbad\x01: x\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nx: a\x01\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nx: a\x00b\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nx: y\r\n \x00\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"CONNECT a:b HTTP/1.1\r\n\r\n",
    b"CONNECT ::1:1 HTTP/1.1\r\n\r\n",
    b"CONNECT [::1:1 HTTP/1.1\r\n\r\n",
    b"CONNECT [::1]1 HTTP/1.1\r\n\r\n",
    b"CONNECT a%41:1 HTTP/1.1\r\n\r\n",
    b"CONNECT a\x7f:1 HTTP/1.1\r\n\r\n",
    b"CONNECT a:1\xff HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("head", GARBAGE)
def test_garbage_gets_the_bare_400_of_go(head: bytes) -> None:
    assert reply_to(head) == BAD_REQUEST


NAMED_FAULTS = [
    (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request: missing required Host header"),
    (b"CONNECT a:1 HTTP/1.1\r\nHost: a b\r\n\r\n", b"400 Bad Request: malformed Host header"),
    (b"CONNECT a:1 HTTP/1.1\r\nb a: x\r\n\r\n", b"400 Bad Request: invalid header name"),
    (b"CONNECT a:1 HTTP/1.1\r\nba : x\r\n\r\n", b"400 Bad Request: invalid header name"),
    (b"CONNECT a:1 HTTP/2.0\r\n\r\n", b"505 HTTP Version Not Supported: unsupported protocol version"),
]


@pytest.mark.parametrize(("head", "status"), NAMED_FAULTS)
def test_some_violations_get_the_reason_that_go_sends(head: bytes, status: bytes) -> None:
    head_bytes = b"HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%s"
    assert reply_to(head) == head_bytes % (status, status)


def test_an_unknown_transfer_encoding_gets_501() -> None:
    assert reply_to(b"CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n") == (
        b"HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        b"Unsupported transfer encoding"
    )


def test_a_head_past_the_limit_gets_431_complete_or_not() -> None:
    long = b"CONNECT a:1 HTTP/1.1\r\nx: " + b"a" * 100 + b"\r\n\r\n"
    for head in (long, long[:-2]):
        with pytest.raises(ProtocolViolation) as caught:
            Http1RequestReader(64).feed(head)
        assert http1.violation_reply(caught.value) == (
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Connection: close\r\n\r\n431 Request Header Fields Too Large"
        )


def test_a_head_of_one_mebibyte_is_accepted() -> None:
    assert parse(b"CONNECT a:1 HTTP/1.1\r\nx: " + b"a" * (1 << 20) + b"\r\n\r\n").address == "a:1"


def test_a_bad_first_line_is_refused_before_the_head_is_complete() -> None:
    assert violation_of(b"garbage\r\nmore").code == 400
    head = Http1RequestReader()
    assert head.feed(b"gar") is None
    with pytest.raises(ProtocolViolation):
        head.feed(b"bage\r\n")


@pytest.mark.parametrize("head", [KUBE_APISERVER, KUBE_APISERVER.replace(b"\r\n", b"\n")])
def test_a_head_may_arrive_one_byte_at_a_time(head: bytes) -> None:
    collector = Http1RequestReader()
    for index in range(len(head) - 1):
        assert collector.feed(head[index : index + 1]) is None
        assert Http1RequestReader().feed(head[: index + 1]) is None
    request = collector.feed(head[-1:])
    assert request is not None
    assert request.address == "10.0.0.1:443"
    assert collector.rest == b""


def test_one_reader_reads_several_requests_in_turn() -> None:
    head = Http1RequestReader()
    first = head.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + KUBE_APISERVER[:9])
    assert first is not None
    assert head.feed(head.rest) is None
    second = head.feed(KUBE_APISERVER[9:])
    assert second is not None
    assert second.address == "10.0.0.1:443"


REFUSAL = (
    b"405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nDate: "
)
BODY = b"\r\nthis proxy only supports CONNECT passthrough\n"
CLOSE = b"Connection: close\r\n" + BODY
KEEP = b"Connection: keep-alive\r\n" + BODY

OTHER_METHODS = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 ", BODY, True),
    (b"connect a:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 ", BODY, True),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 ", b"\r\n", True),
    (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: TE, Close\r\n\r\n", b"HTTP/1.1 ", CLOSE, False),
    (b"PRI * HTTP/2.0\r\n\r\n", b"HTTP/1.1 ", CLOSE, False),
    (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.0 ", BODY, False),
    (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"HTTP/1.0 ", KEEP, True),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", b"HTTP/1.1 ", CLOSE, False),
]


@pytest.mark.parametrize(("head", "start", "end", "stays_open"), OTHER_METHODS)
def test_other_methods_get_the_405_of_go(head: bytes, start: bytes, end: bytes, stays_open: bool) -> None:
    request = parse(head)
    expected = start + REFUSAL + DATE + b"\r\nContent-Length: 45\r\n" + end
    assert http1.method_not_allowed_reply(request, DATE) == expected
    assert http1.stays_open(request) is stays_open


token = st.text(alphabet="abcXYZ019-_.!", min_size=1, max_size=12)
header_value = st.text(alphabet="abc XYZ019,;=/\t", max_size=20).map(str.strip)


@given(
    st.sampled_from(["a:1", "10.0.0.1:443", "[::1]:80", "example.com:65535"]),
    st.lists(st.tuples(token.map(lambda name: f"x-{name}"), header_value), max_size=6),
    st.binary(max_size=20),
    st.data(),
)
def test_h11_agrees_on_valid_heads(
    target: str, headers: list[tuple[str, str]], rest: bytes, data: st.DataObject
) -> None:
    client = h11.Connection(h11.CLIENT)
    sent = client.send(h11.Request(method="CONNECT", target=target, headers=[("Host", "h"), *headers]))
    assert sent is not None
    server = h11.Connection(h11.SERVER)
    server.receive_data(sent)
    event = server.next_event()
    assert isinstance(event, h11.Request)
    cut = data.draw(st.integers(0, len(sent)))
    collector = Http1RequestReader()
    request = (collector.feed(sent[:cut]) if cut else None) or collector.feed(sent[cut:] + rest)
    assert request is not None
    assert (request.method, request.target) == (event.method.decode(), event.target.decode())
    assert request.address == target
    assert collector.rest == (rest if cut < len(sent) else b"")


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused_with_a_violation(data: bytes) -> None:
    try:
        Http1RequestReader().feed(data + b"\r\n\r\n")
        http1.parse_connect_reply(data + b"\r\n\r\n")
    except ProtocolViolation:
        pass


@given(
    st.lists(
        st.sampled_from(
            [b"CONNECT", b" ", b"a:1", b"HTTP/1.1", b"\r", b"\n", b"\r\n", b"Host", b":", b"\t", b"\xff", b"["]
        ),
        max_size=30,
    )
)
def test_pieces_have_the_same_result_as_the_whole(pieces: list[bytes]) -> None:
    def fate(chunks: list[bytes]) -> tuple[str, object]:
        collector = Http1RequestReader()
        try:
            for chunk in chunks:
                request = collector.feed(chunk)
                if request is not None:
                    return "request", (request.method, request.address)
        except ProtocolViolation as violation:
            return "violation", violation.code
        return "incomplete", None

    whole = b"".join(pieces)
    assert fate([whole[index : index + 1] for index in range(len(whole))]) == fate([whole])


def test_a_formatted_request_is_parsed_back() -> None:
    head = http1.format_connect_request("[::1]:443", [("Proxy-Authorization", "Basic eDp5")])
    assert head == b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
    assert parse(head).address == "[::1]:443"


def test_a_line_break_cannot_be_smuggled_into_a_request() -> None:
    with pytest.raises(ValueError, match="line break"):
        http1.format_connect_request("a:1\r\nX: y")
    with pytest.raises(ValueError, match="line break"):
        http1.format_connect_request("a:1", [("X", "a\nb")])


def test_the_established_reply_is_parsed_one_byte_at_a_time() -> None:
    reply = http1.CONNECTION_ESTABLISHED
    for index in range(len(reply)):
        assert http1.parse_connect_reply(reply[:index]) is None
    parsed = http1.parse_connect_reply(reply + b"tunnel")
    assert parsed is not None
    assert (parsed.status, parsed.reason, parsed.end_offset) == (200, "Connection Established", len(reply))


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        (b"HTTP/1.0 407 Proxy Authentication Required\r\nX: y\r\n\r\n", 407, "Proxy Authentication Required"),
        (b"HTTP/1.1 502\r\n\r\n", 502, ""),
        (b"HTTP/1.1 200 \n\n", 200, ""),
    ],
)
def test_other_replies_are_parsed(head: bytes, status: int, reason: str) -> None:
    parsed = http1.parse_connect_reply(head)
    assert parsed is not None
    assert (parsed.status, parsed.reason) == (status, reason)


@pytest.mark.parametrize("head", [b"SSH-2.0\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20 OK\r\n", b"HTTP/1.1 2x0 OK\r\n"])
def test_a_reply_that_is_not_http_is_refused_at_its_first_line(head: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        http1.parse_connect_reply(head)


def test_an_endless_reply_head_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="longer than 64"):
        http1.parse_connect_reply(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 64, limit=64)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunnelPair]:
    """Upstream's server without an agent: it answers every good CONNECT with 500."""
    with upstream_pair(tmp_path_factory.mktemp("upstream")) as pair:
        pair.start_server()
        yield pair


def answer_of(pair: TunnelPair, head: bytes) -> bytes:
    with pair.frontend().connect() as connection:
        connection.settimeout(5)
        connection.sendall(head)
        answer = connection.recv(4096)
        # Nothing follows on a connection that stays open; before a close more may arrive.
        while b" 405 " not in answer and (more := connection.recv(4096)):
            answer += more
        return re.sub(rb"Date: [^\r]*", b"Date: " + DATE, answer)


NO_TUNNEL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\n"


def our_answer(head: bytes) -> bytes:
    try:
        request = parse(head)
    except ProtocolViolation as violation:
        return http1.violation_reply(violation)
    if request.method != "CONNECT":
        return http1.method_not_allowed_reply(request, DATE)
    return NO_TUNNEL + b"currently no tunnels available: No agent available"


@pytest.mark.real("proxy-server")
def test_the_real_server_accepts_and_refuses_the_same_heads_with_the_same_bytes(upstream: TunnelPair) -> None:
    for head in HEADS:
        assert our_answer(head) == answer_of(upstream, head), head


HEADS = [
    *(head for head, _ in ADDRESSES),
    *(head for head, _ in NAMED_FAULTS),
    *(head for head, _, _, _ in OTHER_METHODS[:-1]),  # the last one's body never comes
    *GARBAGE,
    b"CONNECT /path HTTP/1.1\r\nHost: h/x:1\r\n\r\n",
    b"CONNECT * HTTP/1.1\r\n\r\n",
    b"CO\x01NECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def test_headers_of_a_trace_follow_the_status_line_and_contain_no_line_breaks() -> None:
    reply = http1.traced(b"HTTP/1.1 502 Bad Gateway\r\nA: b\r\n\r\nbody", [("X", "one\r\nEvil: 1"), ("Y", "\xe9")])
    assert reply == b"HTTP/1.1 502 Bad Gateway\r\nX: one??Evil: 1\r\nY: ?\r\nA: b\r\n\r\nbody"


def test_a_client_asks_for_a_trace_by_a_header() -> None:
    for header, wanted in ((b"", False), (b"umbilical-trace: 1\r\n", True), (b"Umbilical-Trace: yes\r\n", False)):
        request = Http1RequestReader().feed(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n")
        assert request is not None
        assert request.wants_trace is wanted


def test_a_client_without_permission_gets_the_reason() -> None:
    assert http1.forbidden_reply("no").endswith(b"Connection: close\r\n\r\nno")
    assert http1.forbidden_reply("no").startswith(b"HTTP/1.1 403 Forbidden\r\n")
