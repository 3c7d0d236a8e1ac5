"""Any bytes, cut anywhere: the handshake neither crashes nor grows, and pieces mean what the whole means."""

import socket
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire import socks5
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.socks5 import Handshake, ipv6_text

_names: Final = st.binary(min_size=0, max_size=255)
_greetings: Final = st.binary(max_size=8).map(lambda methods: b"\x05" + bytes((len(methods),)) + methods)
_credentials: Final = st.tuples(_names, _names).map(
    lambda pair: b"\x01" + bytes((len(pair[0]),)) + pair[0] + bytes((len(pair[1]),)) + pair[1]
)
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
    handshake, said = Handshake(password_needed), b""
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
def test_pieces_mean_what_the_whole_means(data: bytes, password_needed: bool) -> None:
    whole = _outcome([data], password_needed)
    single = _outcome([bytes((byte,)) for byte in data], password_needed)
    assert single == whole


@given(_conversations, st.booleans())
def test_a_target_is_a_plain_word_whatever_was_sent(data: bytes, password_needed: bool) -> None:
    """It is written into a line of text for the next hop."""
    handshake = Handshake(password_needed)
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
def test_what_waits_for_a_whole_handshake_is_bounded(pieces: list[bytes], password_needed: bool) -> None:
    handshake = Handshake(password_needed)
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
