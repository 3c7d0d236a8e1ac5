"""Rules of the packet filter that no scenario of the lab needs, for tests of how rules are added and removed."""

from collections.abc import Sequence

from umbilical.lab.topology import IpAddress


def block_tcp_port(port: int) -> str:
    """Swallow everything to and from a TCP port of other machines and pods, of open connections too."""
    return _both_ways([f"tcp dport {port} drop", f"tcp sport {port} drop"])


def drop_address(address: IpAddress) -> str:
    word = "ip" if address.version == 4 else "ip6"
    return _both_ways([f"{word} saddr {address} drop", f"{word} daddr {address} drop"])


def _both_ways(rules: Sequence[str]) -> str:
    """Judge what comes in, pods' packets too, and what we send; a node's talk with itself is left alone."""
    coming = "\n".join(f'iifname != "lo" {rule}' for rule in rules)
    going = "\n".join(f'oifname != "lo" {rule}' for rule in rules)
    return f"""
chain coming {{ type filter hook prerouting priority raw; policy accept;
{coming}
}}
chain going {{ type filter hook output priority raw; policy accept;
{going}
}}"""
