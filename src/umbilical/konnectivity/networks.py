"""Networks that agents name by `cidr` identifiers, and the group of the longest prefix that holds an address.

IPv4 in IPv6's clothes (::ffff:10.0.0.1) is IPv4 here, in addresses and in networks; no IPv6 network else holds IPv4.
"""

from typing import TYPE_CHECKING, Final

from umbilical.konnectivity.links import Group

if TYPE_CHECKING:
    # Only servers whose agents name networks load it: a quarter of a megabyte.
    from ipaddress import IPv4Address, IPv6Address

Network = tuple[int, int, int]
"""IP version, length of the prefix, and the prefix itself as a number of so many bits."""

_BITS: Final = {4: 32, 6: 128}
_MAPPED_PREFIX: Final = 96
"""Bits of ::ffff:0:0/96 (RFC 4291, 2.5.5.2)."""


def parse_network(text: str) -> Network | None:
    """Read "address/length" as Go does: bits behind the prefix are dropped, nothing else is forgiven."""
    address, _, digits = text.partition("/")
    found = _parse_address(address)
    if found is None or "%" in address or not (digits.isascii() and digits.isdigit() and len(digits) <= 3):
        return None
    length = int(digits)
    if length > _BITS[found.version]:
        return None
    plain = _unmapped(found)
    if plain.version != found.version:
        if length < _MAPPED_PREFIX:
            plain = found  # wider than all of IPv4: a network of IPv6
        else:
            length -= _MAPPED_PREFIX
    return plain.version, length, int(plain) >> (_BITS[plain.version] - length)


def parse_address(text: str) -> "IPv4Address | IPv6Address | None":
    """Read an address; None for a name. IPv4 in IPv6's clothes is given back as IPv4."""
    found = _parse_address(text)
    return None if found is None else _unmapped(found)


def covers(outer: Network, inner: Network) -> bool:
    """Tell whether every address of `inner` is in `outer`."""
    version, length, prefix = outer
    return version == inner[0] and length <= inner[1] and inner[2] >> (inner[1] - length) == prefix


def _parse_address(text: str) -> "IPv4Address | IPv6Address | None":
    if not (text[:1].isdigit() or ":" in text):
        return None  # a name: spares the cost of an exception
    from ipaddress import ip_address

    try:
        return ip_address(text)
    except ValueError:
        return None


def _unmapped(address: "IPv4Address | IPv6Address") -> "IPv4Address | IPv6Address":
    if address.version == 6:
        return address.ipv4_mapped or address
    return address


class _Family:
    """The networks of one IP version."""

    def __init__(self, bits: int) -> None:
        self.bits: Final = bits
        self.groups: Final[dict[int, dict[int, Group]]] = {}
        """By length, then by prefix."""
        self.lengths: list[int] = []
        """Longest first; there are few."""

    def count_lengths(self) -> None:
        self.lengths = sorted(self.groups, reverse=True)


class NetworkTable:
    def __init__(self) -> None:
        self._families: Final = {4: _Family(32), 6: _Family(128)}
        self.count = 0

    def group(self, network: Network) -> Group:
        """The group of a network, made if it is new."""
        version, length, prefix = network
        family = self._families[version]
        groups = family.groups.get(length)
        if groups is None:
            groups = {}
            family.groups[length] = groups
            family.count_lengths()
        found = groups.get(prefix)
        if found is None:
            found = Group()
            groups[prefix] = found
            self.count += 1
        return found

    def forget_if_empty(self, network: Network) -> None:
        version, length, prefix = network
        family = self._families[version]
        groups = family.groups.get(length, {})
        group = groups.get(prefix)
        if group is None or group.slots:
            return
        del groups[prefix]
        self.count -= 1
        if not groups:
            del family.groups[length]
            family.count_lengths()

    def find(self, host: str) -> Group | None:
        """The group of the longest prefix that holds this address; None for names, which no server looks up."""
        address = parse_address(host) if self.count else None
        if address is None:
            return None
        family = self._families[address.version]
        number = int(address)
        for length in family.lengths:
            group = family.groups[length].get(number >> (family.bits - length))
            if group is not None:
                return group
        return None
