"""Who a certificate is for: names, usage and key type, as plain values; and addresses as users write them, made fit for
a certificate, since what agents dial must be in it letter by letter. Nothing here draws a key or signs:
`Backend` is who does: the `cryptography` library (`authority`) or the host's `openssl`, with the same certificates.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Protocol

from umbilical.fault import PkiError
from umbilical.pki.pem import KeyPair

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Clocks of machines that are just being installed run apart; an hour is what OpenShift's installer allows as well.
BACKDATE: Final = timedelta(hours=1)
# ub-common-name of RFC 5280 §A.1. Kubernetes reads user names there, and those of service accounts are longer: Go makes
# such certificates, and Go and OpenSSL read them.
MAX_COMMON_NAME: Final = 64
NOT_ITS_KEY: Final = "the private key does not belong to the certificate"


class KeyType(Enum):
    RSA_2048 = "rsa-2048"
    ECDSA_P256 = "ecdsa-p256"


class Usage(Enum):
    """What the holder of a leaf certificate does in a TLS handshake."""

    SERVER = "serverAuth"
    CLIENT = "clientAuth"


@dataclass(frozen=True)
class Profile:
    common_name: str
    usages: tuple[Usage, ...]
    organizations: tuple[str, ...] = ()
    """Kubernetes reads these as groups."""
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IpAddress, ...] = ()
    key_type: KeyType = KeyType.RSA_2048


def server_profile(common_name: str, names: Iterable[str], key_type: KeyType = KeyType.RSA_2048) -> Profile:
    """Describe a server that is reached by `names`: host names and addresses, mixed as users give them."""
    dns_names, addresses = split_names(names)
    return Profile(common_name, (Usage.SERVER,), (), dns_names, addresses, key_type)


def client_profile(
    common_name: str, organizations: Iterable[str] = (), key_type: KeyType = KeyType.RSA_2048
) -> Profile:
    """Describe a client, an agent included: it proves who it is and is reached by no name."""
    return Profile(common_name, (Usage.CLIENT,), tuple(organizations), key_type=key_type)


def split_names(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[IpAddress, ...]]:
    """Part addresses from host names, order kept, doubles dropped: a verifier looks for each in its own SAN type."""
    dns_names: dict[str, None] = {}
    addresses: dict[IpAddress, None] = {}
    for name in names:
        address = parse_address(name)
        if address is None:
            dns_names[name] = None
        else:
            addresses[address] = None
    return tuple(dns_names), tuple(addresses)


def parse_address(name: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}")
_MAX_NAME: Final = 253
_PORT: Final = re.compile(r"(\[.*\]|[^:]*):[0-9]*")


def usable_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Return each address once, in its plain form. Raises PkiError: one fits no certificate or no dial."""
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


class Signer(Protocol):
    """An authority with its key at hand."""

    @property
    def pair(self) -> KeyPair: ...

    def issue(self, profile: Profile, now: datetime, lifetime: timedelta) -> KeyPair:
        """Draw a key for the profile and sign its certificate, which begins an hour before `now`."""
        ...


class Backend(Protocol):
    """`Authority` (the class itself) and `Openssl` are such."""

    def create(
        self,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        key_type: KeyType = KeyType.RSA_2048,
        organizations: Iterable[str] = (),
    ) -> Signer:
        """Draw a key and sign it with itself."""
        ...

    def load(self, pair: KeyPair) -> Signer:
        """Take up an authority that was made earlier; of a bundle, the certificate that the key belongs to.

        Raises BundleError: not PEM, not a CA, or the key is another certificate's.
        """
        ...
