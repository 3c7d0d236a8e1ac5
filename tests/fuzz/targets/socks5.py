"""SOCKS5 handshakes: however they are cut, the same answers and the same request, with an address that can be dialled.

Input: how (bit 0: a password is needed, bit 1: it is wrong), the largest piece, then the bytes of the client.
"""

import ipaddress
from typing import Final

from tests.fuzz.choices import Choices, pieces

from umbilical.wire import socks5
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http1 import format_connect_request

PASSWORD_NEEDED: Final = 1
PASSWORD_WRONG: Final = 2
Seen = tuple[object, ...]


def target(data: bytes) -> None:
    choices = Choices(data)
    how, largest = choices.number(), choices.number()
    octets = choices.rest()
    assert _shake_hands(how, octets, len(octets)) == _shake_hands(how, octets, largest)
    _check_addresses(octets)


def _shake_hands(how: int, octets: bytes, largest: int) -> Seen:
    handshake = socks5.SocksHandshake(bool(how & PASSWORD_NEEDED))
    said = b""
    try:
        for piece in pieces(octets, largest):
            handshake.feed(piece)
            said += handshake.output()
            if handshake.state == socks5.CHECKING:
                handshake.credentials_are(not how & PASSWORD_WRONG)
                said += handshake.output()
    except ProtocolViolation as violation:
        return said + handshake.output(), violation.message
    return said, *_outcome(handshake)


def _outcome(handshake: socks5.SocksHandshake) -> Seen:
    assert (handshake.refusal is not None) == (handshake.state == socks5.REFUSED)
    assert (handshake.request is not None) == (handshake.state == socks5.DIALLING)
    assert handshake.username == handshake.password == b"", "credentials are kept no longer than their check"
    if handshake.refusal is not None:
        return handshake.refusal.kind, handshake.refusal.text
    if handshake.request is None:
        return (handshake.state,)
    host, port = handshake.request.host, handshake.request.port
    format_connect_request(f"{host}:{port}")
    assert host.isascii()
    assert host.isprintable()
    assert 0 < port < 65536
    return host, port, handshake.rest()


def _check_addresses(octets: bytes) -> None:
    packed = octets[-16:]
    if len(packed) == 16:
        mapped = ipaddress.IPv6Address(packed).ipv4_mapped
        wanted = f"::ffff:{mapped}" if mapped is not None else str(ipaddress.IPv6Address(packed))
        assert socks5.ipv6_text(packed) == wanted
        assert socks5.ipv4_text(packed[:4]) == str(ipaddress.IPv4Address(packed[:4]))
