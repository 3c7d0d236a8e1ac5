"""Profiles of certificates: names, usage, key type; and addresses from users, normalized because the certificate must
hold exactly what agents dial. Nothing here makes a key or signs: that is a `Backend`, the `cryptography` library
(`authority`) or the host's `openssl`, which produce the same certificates.
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

# Clocks of machines that are being installed differ; OpenShift's installer backdates by an hour too.
BACKDATE: Final = timedelta(hours=1)
# ub-common-name of RFC 5280 §A.1. Kubernetes takes user names from there, and service account names are longer: Go
# creates such certificates, and Go and OpenSSL accept them.
MAX_COMMON_NAME: Final = 64
NOT_ITS_KEY: Final = "the private key does not belong to the certificate"


class KeyType(Enum):
    RSA_2048 = "rsa-2048"
    ECDSA_P256 = "ecdsa-p256"


class Usage(Enum):
    """Role of the holder in a TLS handshake."""

    SERVER = "serverAuth"
    CLIENT = "clientAuth"


@dataclass(frozen=True)
class Profile:
    common_name: str
    usages: tuple[Usage, ...]
    organizations: tuple[str, ...] = ()
    """Kubernetes uses these as groups."""
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IpAddress, ...] = ()
    key_type: KeyType = KeyType.RSA_2048


def server_profile(common_name: str, names: Iterable[str], key_type: KeyType = KeyType.RSA_2048) -> Profile:
    """Return the profile of a server with these host names and addresses, mixed."""
    dns_names, addresses = split_names(names)
    return Profile(common_name, (Usage.SERVER,), (), dns_names, addresses, key_type)


def client_profile(
    common_name: str, organizations: Iterable[str] = (), key_type: KeyType = KeyType.RSA_2048
) -> Profile:
    """Return the profile of a client or agent: it has no names."""
    return Profile(common_name, (Usage.CLIENT,), tuple(organizations), key_type=key_type)


def split_names(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[IpAddress, ...]]:
    """Separate host names from addresses, without duplicates: a SAN has a type for each."""
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
    """Normalize addresses and drop duplicates. Raises PkiError: one is not valid in a certificate."""
    return tuple(dict.fromkeys(usable_address(text) for text in texts))


def usable_address(text: str) -> str:
    """Normalize an IPv4 or IPv6 address, brackets allowed, or a host name."""
    plain = text.strip()
    if _PORT.fullmatch(plain):
        raise _unusable(text, "it has a port, which certificates cannot hold", "remove the port")
    inner = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
    if ":" in inner or plain != inner:
        return _ipv6(text, inner)
    return _ipv4_or_name(text, inner)


def _ipv6(text: str, inner: str) -> str:
    if "%" in inner:
        raise _unusable(text, "its zone is valid on one machine only", "use an address without %ZONE")
    try:
        return _dialled(text, ipaddress.IPv6Address(inner))
    except ValueError:
        raise _unusable(text, "it is not an IPv6 address", "use a form like 2001:db8::9") from None


def _ipv4_or_name(text: str, inner: str) -> str:
    try:
        return _dialled(text, ipaddress.IPv4Address(inner))
    except ValueError:
        return _host_name(text, inner.lower().removesuffix("."))


def _host_name(text: str, name: str) -> str:
    if not name.isascii():
        raise _unusable(text, "certificates hold ASCII names only", "use the punycode form (xn--...)")
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise _unusable(text, "it is neither an address nor a host name", "use e.g. 10.0.0.9, 2001:db8::9 or a name")
    if name.rpartition(".")[2].isdigit():
        raise _unusable(text, "it ends in a number but is not an IPv4 address", "use all four numbers, like 10.0.0.9")
    if name == "null":
        # A valid name, but also what jq prints for a route without a source address.
        raise _unusable(text, "`jq` prints null when it finds no value", "check the output of: ip -j route get ADDRESS")
    return name


def _dialled(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if address.is_unspecified or address.is_multicast:
        raise _unusable(text, "it is an unspecified or multicast address", "use the address that agents dial")
    return str(address)


def _unusable(text: str, why: str, remedy: str) -> PkiError:
    return PkiError("UMB150", f"address {text!r} is not valid in a certificate", why, remedy)


class CertificateSigner(Protocol):
    """A CA with its private key."""

    @property
    def pair(self) -> KeyPair: ...

    def issue(self, profile: Profile, now: datetime, lifetime: timedelta) -> KeyPair:
        """Generate a key for the profile and sign its certificate, valid from an hour before `now`."""
        ...


class Backend(Protocol):
    """Implemented by the class `Authority` itself and by `Openssl`."""

    def create(
        self,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        key_type: KeyType = KeyType.RSA_2048,
        organizations: Iterable[str] = (),
    ) -> CertificateSigner:
        """Generate a key and a self-signed certificate."""
        ...

    def load(self, pair: KeyPair) -> CertificateSigner:
        """Load an existing CA; from a bundle, the certificate that the key belongs to.

        Raises BundleError: not PEM, not a CA, or no certificate belongs to the key.
        """
        ...
