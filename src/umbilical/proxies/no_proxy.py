"""NO_PROXY exactly as Go's golang.org/x/net/http/httpproxy reads it: people's lists are written for that.

Names are never resolved to match a network, and an address never matches a name.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

from umbilical.konnectivity.networks import Network, parse_network

_BITS: Final = {4: 32, 6: 128}
Number = tuple[int, int]
"""IP version and address; IPv4 in IPv6's clothes is IPv4."""


class NoProxy:
    """A comma-separated list, parsed once."""

    def __init__(self, text: str) -> None:
        self._all = False
        self._networks: list[Network] = []
        self._addresses: list[tuple[Number, str]] = []
        self._suffixes: list[tuple[str, bool, str]] = []
        for entry in text.split(","):
            self._add(entry.strip().lower())

    def matches(self, host: str, port: int) -> bool:
        """Tell whether no proxy is used for this; loopback never uses one."""
        if host == "localhost":  # in lower case alone, as in Go
            return True
        address = _address(host)
        if self._all or (address is not None and _is_loopback(address)):
            return True
        if address is not None:
            return self._holds(_number(address), str(port))
        return self._names(_ascii(host.strip().lower()), str(port))

    def _add(self, entry: str) -> None:
        if entry == "*":
            self._all = True
            return
        network = parse_network(entry) if "/" in entry else None
        if network is not None:
            self._networks.append(network)
            return
        name, port = _split(entry)
        address = None if "%" in name else _address(name)
        if address is not None:
            self._addresses.append((_number(address), port))
        elif name:
            self._add_name(name, port)

    def _add_name(self, name: str, port: str) -> None:
        if name.startswith("*."):
            name = name[1:]
        itself = not name.startswith(".")
        self._suffixes.append(("." + _ascii(name.removeprefix(".")), itself, port))

    def _holds(self, number: Number, port: str) -> bool:
        version, value = number
        if any(of == version and value >> (_BITS[of] - length) == prefix for of, length, prefix in self._networks):
            return True
        return any(listed == number and wanted in ("", port) for listed, wanted in self._addresses)

    def _names(self, host: str, port: str) -> bool:
        return any(
            (host.endswith(suffix) or (itself and host == suffix[1:])) and wanted in ("", port)
            for suffix, itself, wanted in self._suffixes
        )


def _address(text: str) -> "IPv4Address | IPv6Address | None":
    if not (text[:1].isdigit() or ":" in text):
        return None
    from ipaddress import IPv6Address, ip_address

    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _number(address: "IPv4Address | IPv6Address") -> Number:
    return address.version, int(address)


def _is_loopback(address: "IPv4Address | IPv6Address") -> bool:
    # Of its own, since Python counts the zone of an IPv6 address as part of it.
    return int(address) >> 24 == 127 if address.version == 4 else int(address) == 1


def _split(entry: str) -> tuple[str, str]:
    """Host and port where Go's SplitHostPort sees both; else all of it is the host."""
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        fits = bracket and rest.startswith(":") and not set("[]") & set(host + rest) and ":" not in rest[1:]
        return (host, rest[1:]) if fits else (entry, "")
    host, _, port = entry.partition(":")
    fits = ":" in entry and ":" not in port and not set("[]") & set(entry)
    return (host, port) if fits else (entry, "")


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name
