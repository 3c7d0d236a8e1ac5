"""RFC 1928 and RFC 1929, server side, case by case."""

import socket
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire import socks5
from umbilical.wire.errors import MisuseError, ProtocolViolation
from umbilical.wire.socks5 import SocksHandshake, encode_reply, ipv6_text

HELLO: Final = b"\x05\x01\x00"
ENTER: Final = b"\x05\x01\x02"
PORT_443: Final = b"\x01\xbb"
CONNECT_V4: Final = b"\x05\x01\x00\x01\x0a\x80\x02\x05" + PORT_443


def connect_name(name: bytes, port: bytes = PORT_443) -> bytes:
    return b"\x05\x01\x00\x03" + bytes((len(name),)) + name + port


def credentials(username: bytes, password: bytes) -> bytes:
    return b"\x01" + bytes((len(username),)) + username + bytes((len(password),)) + password


def played(*pieces: bytes, password_needed: bool = False) -> SocksHandshake:
    handshake = SocksHandshake(password_needed)
    for piece in pieces:
        handshake.feed(piece)
    return handshake


def target(handshake: SocksHandshake) -> tuple[str, int]:
    assert handshake.state == socks5.DIALLING
    assert handshake.request is not None
    return handshake.request.host, handshake.request.port


def refusal(handshake: SocksHandshake) -> tuple[str, bytes]:
    assert handshake.state == socks5.REFUSED
    assert handshake.refusal is not None
    return handshake.refusal.kind, handshake.output()


@pytest.mark.parametrize(("password_needed", "state"), [(False, socks5.REQUEST), (True, socks5.CREDENTIALS)])
def test_a_password_is_requested_only_if_it_is_needed(password_needed: bool, state: int) -> None:
    handshake = played(b"\x05\x03\x02\x01\x00", password_needed=password_needed)
    assert handshake.output() == (b"\x05\x02" if password_needed else b"\x05\x00")
    assert handshake.state == state


@pytest.mark.parametrize("offered", [b"", b"\x01", b"\x02", b"\x80\xff"])
def test_a_client_without_an_acceptable_method_gets_ff(offered: bytes) -> None:
    handshake = played(b"\x05" + bytes((len(offered),)) + offered)
    assert refusal(handshake) == ("unauthorized", b"\x05\xff")


@pytest.mark.parametrize("offered", [b"", b"\x00", b"\x00\x01"])
def test_a_client_that_does_not_offer_a_needed_password_is_refused(offered: bytes) -> None:
    handshake = played(b"\x05" + bytes((len(offered),)) + offered, CONNECT_V4, password_needed=True)
    assert refusal(handshake) == ("unauthorized", b"\x05\xff")
    assert handshake.request is None


@pytest.mark.parametrize("first", [b"\x04\x01", b"G", b"\x16\x03\x01", b"\x00", b"\xff"])
def test_another_version_gets_no_answer_at_all(first: bytes) -> None:
    handshake = SocksHandshake(False)
    with pytest.raises(ProtocolViolation, match="not 5"):
        handshake.feed(first)
    assert handshake.output() == b""


def test_all_255_methods_may_be_offered() -> None:
    assert played(b"\x05\xff" + bytes(range(255, 0, -1))[:254] + b"\x00").state == socks5.REQUEST


@pytest.mark.parametrize(("username", "password"), [(b"ann", b"s3cret"), (b"u" * 255, b"p" * 255)])
def test_credentials_are_kept_only_until_they_are_checked(username: bytes, password: bytes) -> None:
    handshake = played(ENTER, credentials(username, password), password_needed=True)
    assert handshake.state == socks5.CHECKING
    assert (handshake.username, handshake.password) == (username, password)
    assert handshake.output() == b"\x05\x02"
    handshake.credentials_are(True)
    assert (handshake.username, handshake.password) == (b"", b"")


def test_bad_credentials_are_answered_and_end_the_handshake() -> None:
    handshake = played(ENTER, credentials(b"ann", b"wrong") + CONNECT_V4, password_needed=True)
    handshake.output()
    handshake.credentials_are(False)
    assert refusal(handshake) == ("unauthorized", b"\x01\x01")
    assert handshake.request is None


@pytest.mark.parametrize(
    ("hello", "more", "words"),
    [(ENTER, b"\x05\x01\x00", "credentials of version 5"), (HELLO, b"\x04\x01", "request of SOCKS version 4")],
)
def test_what_follows_in_another_version_gets_no_answer(hello: bytes, more: bytes, words: str) -> None:
    handshake = played(hello, password_needed=hello == ENTER)
    handshake.output()
    with pytest.raises(ProtocolViolation, match=words):
        handshake.feed(more)
    assert handshake.output() == b""


def test_calls_in_the_wrong_state_raise_misuse_errors() -> None:
    with pytest.raises(MisuseError):
        SocksHandshake(True).credentials_are(True)
    with pytest.raises(MisuseError, match="greeting"):
        SocksHandshake(False).rest()


@pytest.mark.parametrize(
    ("request_bytes", "host", "port"),
    [
        pytest.param(b"\x05\x01\x00\x04\xfd" + bytes(12) + b"\x02\x00\x05\x20\xfb", "fd00::2:5", 8443, id="IPv6"),
        pytest.param(connect_name(b"Api_1.my-ns.svc."), "Api_1.my-ns.svc.", 443, id="a name as it was sent"),
        pytest.param(connect_name(b"n" * 255), "n" * 255, 443, id="as long as the length byte allows"),
        pytest.param(b"\x05\x01\x77" + CONNECT_V4[3:], "10.128.2.5", 443, id="any reserved byte"),
    ],
)
def test_a_target_is_read(request_bytes: bytes, host: str, port: int) -> None:
    assert target(played(HELLO, request_bytes)) == (host, port)


BAD_NAMES: Final = [b"", b"a b", b"a\r\nHost: b", b"a\x00b", b"a/b", b"u@h", "ü".encode(), b"[::1]"]


@pytest.mark.parametrize(
    ("request_bytes", "kind", "code"),
    [
        *((bytes((5, command)) + CONNECT_V4[2:], "unsupported", 7) for command in (0, 2, 3, 4, 0x7F, 0xFF)),
        # A server that resolves first would blame the name instead of the command BIND.
        (b"\x05\x02\x00\x03", "unsupported", 7),
        *((bytes((5, 1, 0, address_type)), "unsupported", 8) for address_type in (0, 2, 5, 0xFF)),
        *((connect_name(name), "bad-request", 4) for name in BAD_NAMES),
        (connect_name(b"a", b"\0\0"), "bad-request", 1),
    ],
)
def test_a_request_that_cannot_be_served_gets_the_matching_reply(request_bytes: bytes, kind: str, code: int) -> None:
    handshake = played(HELLO)
    handshake.output()
    handshake.feed(request_bytes)
    assert refusal(handshake) == (kind, bytes((5, code, 0, 1)) + bytes(6))


def test_everything_may_come_one_byte_at_a_time() -> None:
    handshake = SocksHandshake(True)
    said = b""
    for byte in ENTER + credentials(b"ann", b"s3cret") + connect_name(b"api.example"):
        handshake.feed(bytes((byte,)))
        if handshake.state == socks5.CHECKING:
            handshake.credentials_are((handshake.username, handshake.password) == (b"ann", b"s3cret"))
        said += handshake.output()
    assert said == b"\x05\x02\x01\x00"
    assert target(handshake) == ("api.example", 443)
    assert handshake.rest() == b""


def test_everything_may_come_at_once_and_what_is_behind_the_request_is_kept() -> None:
    handshake = played(HELLO + connect_name(b"api.example") + b"GET / HTTP/1.1\r\n")
    assert handshake.output() == b"\x05\x00"
    assert target(handshake) == ("api.example", 443)
    handshake.feed(b"Host: a\r\n\r\n")
    assert handshake.rest() == b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert handshake.rest() == b""


def test_credentials_and_request_may_come_at_once() -> None:
    handshake = played(ENTER + credentials(b"ann", b"x") + CONNECT_V4 + b"early", password_needed=True)
    handshake.credentials_are(True)
    assert handshake.output() == b"\x05\x02\x01\x00"
    assert handshake.rest() == b"early"


def test_a_failure_is_answered_with_an_empty_ipv4_address() -> None:
    assert encode_reply(socks5.CONNECTION_REFUSED) == b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"


def test_a_success_contains_the_local_address_of_the_connection() -> None:
    assert encode_reply(socks5.SUCCEEDED, b"\x7f\0\0\1", 8090) == b"\x05\x00\x00\x01\x7f\x00\x00\x01\x1f\x9a"
    packed = socket.inet_pton(socket.AF_INET6, "::1")
    assert encode_reply(socks5.SUCCEEDED, packed, 1) == b"\x05\x00\x00\x04" + packed + b"\x00\x01"


IPV6_TEXTS: Final = [
    "::", "::1", "1::", "2001:db8::1:0:0:1", "2001:db8:0:1:1:1:1:1", "fd00:0:0:1::", "::ffff:10.0.0.1",
    "1:2:3:4:5:6:7:8",
]  # fmt: skip


@pytest.mark.parametrize("text", IPV6_TEXTS)
def test_an_ipv6_address_has_one_text(text: str) -> None:
    assert ipv6_text(socket.inet_pton(socket.AF_INET6, text)) == text


_names: Final = st.binary(min_size=0, max_size=255)
_greetings: Final = st.binary(max_size=8).map(lambda methods: b"\x05" + bytes((len(methods),)) + methods)
_credentials: Final = st.builds(credentials, _names, _names)
_requests: Final = st.tuples(
    st.binary(min_size=3, max_size=3), st.sampled_from([1, 3, 4, 9]), st.binary(max_size=64)
).map(lambda parts: b"\x05" + parts[0][:1] + b"\x00" + bytes((parts[1],)) + parts[2])
_conversations: Final = st.one_of(
    st.binary(max_size=600),
    st.lists(
        st.one_of(_greetings, _credentials, _requests, st.just(b"\x05\x01\x00\x01\x7f\0\0\1\0\x50")), max_size=4
    ).map(b"".join),
    st.tuples(st.sampled_from([b"\x05\x01\x00", b"\x05\x01\x02\x01\x01a\x01b"]), _requests).map(b"".join),
)


def _outcome(pieces: list[bytes], password_needed: bool) -> tuple[int, bytes, str, bytes]:
    """State, answer, target, and what is left for the endpoint."""
    handshake, said = SocksHandshake(password_needed), b""
    state = -1
    try:
        for piece in pieces:
            if handshake.state == socks5.REFUSED:
                break
            handshake.feed(piece)
            if handshake.state == socks5.CHECKING:
                handshake.credentials_are(handshake.username == handshake.password)
        state = handshake.state
    except ProtocolViolation:
        pass
    said += handshake.output()
    request = handshake.request
    shown = f"{request.host} {request.port}" if request is not None else ""
    return state, said, shown, handshake.rest() if state == socks5.DIALLING else b""


@given(_conversations, st.booleans())
def test_handshake_pieces_have_the_same_result_as_the_whole(data: bytes, password_needed: bool) -> None:
    whole = _outcome([data], password_needed)
    single = _outcome([bytes((byte,)) for byte in data], password_needed)
    assert single == whole


@given(_conversations, st.booleans())
def test_a_target_contains_only_safe_characters_whatever_was_sent(data: bytes, password_needed: bool) -> None:
    """It is written into the request line to the next hop."""
    handshake = SocksHandshake(password_needed)
    try:
        handshake.feed(data)
    except ProtocolViolation:
        return
    if handshake.request is not None:
        assert handshake.request.host.isascii()
        assert handshake.request.host.replace(":", "").replace(".", "").replace("-", "").replace("_", "").isalnum() or (
            set(handshake.request.host) <= set(":.-_")
        )
        assert 0 < handshake.request.port < 65536


@given(st.lists(st.binary(min_size=1, max_size=64), max_size=200), st.booleans())
def test_the_bytes_of_an_incomplete_handshake_are_limited(pieces: list[bytes], password_needed: bool) -> None:
    handshake = SocksHandshake(password_needed)
    said = 0
    for piece in pieces:
        if handshake.state in (socks5.DIALLING, socks5.REFUSED, socks5.CHECKING):
            break
        try:
            handshake.feed(piece)
        except ProtocolViolation:
            break
        said += len(piece)
        if handshake.state not in (socks5.DIALLING, socks5.REFUSED):
            assert said <= socks5.MAX_HANDSHAKE_BYTES + 64


@given(st.binary(min_size=16, max_size=16))
def test_the_text_of_an_address_is_that_address(packed: bytes) -> None:
    assert socket.inet_pton(socket.AF_INET6, ipv6_text(packed)) == packed
