"""Who a certificate is for: names, usage and key type, as plain values. Nothing here draws a key or signs."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

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
        address = _address(name)
        if address is None:
            dns_names[name] = None
        else:
            addresses[address] = None
    return tuple(dns_names), tuple(addresses)


def _address(name: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
