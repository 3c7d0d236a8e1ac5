"""Which TCP addresses are listened on, by the kernel's own table: a node has no other program that must be there."""

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
COMMAND: Final = ("cat", *TABLES)
"""Run it inside the network namespace in question; without IPv6 it fails and still prints the first table."""
_LISTEN: Final = "0A"


def listeners(tables: str) -> list[tuple[str, int]]:
    """Return address and port of every listener in the text of both tables (proc_net_tcp(5) has the format)."""
    rows = [line.split() for line in tables.splitlines()]
    return [_address(row[1]) for row in rows if len(row) > 3 and row[3] == _LISTEN]


def on_ports(tables: str, ports: Sequence[int]) -> list[str]:
    """Return the listeners on any of these ports, as ADDRESS:PORT."""
    return [_shown(host, port) for host, port in listeners(tables) if port in ports]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    # Words of 32 bits in the order of this machine.
    words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))), int(port, 16)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
