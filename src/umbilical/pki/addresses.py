"""Addresses as users write them, made fit for a certificate: what agents dial must be in it letter by letter."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from umbilical.fault import PkiError

_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}")
_MAX_NAME: Final = 253
_PORT: Final = re.compile(r"(\[.*\]|[^:]*):[0-9]*")


def usable_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Return every address in its plain form, order kept, doubles dropped.

    Raises:
        PkiError: one of them can be in no certificate, or nobody could dial it.
    """
    return tuple(dict.fromkeys(usable_address(text) for text in texts))


def usable_address(text: str) -> str:
    """Read an IPv4 or IPv6 address, brackets allowed, or a host name."""
    plain = text.strip()
    if _PORT.fullmatch(plain):
        raise _unusable(text, "it has a port, and certificates know none", "leave the port out")
    inner = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
    if ":" in inner or plain != inner:
        return _ipv6(text, inner)
    return _ipv4_or_name(text, inner)


def _ipv6(text: str, inner: str) -> str:
    if "%" in inner:
        raise _unusable(text, "its zone means something on one machine only", "give an address without %ZONE")
    try:
        return _dialled(text, ipaddress.IPv6Address(inner))
    except ValueError:
        raise _unusable(text, "it is no IPv6 address", "write it like 2001:db8::9") from None


def _ipv4_or_name(text: str, inner: str) -> str:
    try:
        return _dialled(text, ipaddress.IPv4Address(inner))
    except ValueError:
        return _host_name(text, inner.lower().removesuffix("."))


def _host_name(text: str, name: str) -> str:
    if not name.isascii():
        raise _unusable(text, "certificates hold ASCII names only", "write it in its xn-- form")
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise _unusable(text, "it is neither an address nor a host name", "write 10.0.0.9, 2001:db8::9 or a name")
    if name.rpartition(".")[2].isdigit():
        raise _unusable(text, "it ends in a number as an address does, and is none", "write all four parts")
    if name == "null":
        # A legal name, but what jq prints for a route without a source address.
        raise _unusable(text, "this is what `jq` prints when it finds nothing", "see `ip -j route get`")
    return name


def _dialled(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if address.is_unspecified or address.is_multicast:
        raise _unusable(text, "nobody can connect to it", "give the address that agents dial")
    return str(address)


def _unusable(text: str, why: str, remedy: str) -> PkiError:
    return PkiError("UMB150", f"address {text!r} cannot be in a certificate", why, remedy)
