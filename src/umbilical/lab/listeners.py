"""TCP listeners from the kernel's tables; needs no program like `ss` on the node."""

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
COMMAND: Final = ("cat", *TABLES)
"""Prints the tables of the network namespace in which it runs; without IPv6 it fails after the first."""
_LISTEN: Final = "0A"


def listeners(tables: str) -> list[tuple[str, int]]:
    """Return address and port of every listener in the tables (format: proc_net_tcp(5))."""
    rows = [line.split() for line in tables.splitlines()]
    return [_address(row[1]) for row in rows if len(row) > 3 and row[3] == _LISTEN]


def on_ports(tables: str, ports: Sequence[int]) -> list[str]:
    """Return the listeners on any of these ports, as ADDRESS:PORT."""
    return [_shown(host, port) for host, port in listeners(tables) if port in ports]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    # 32-bit words in this machine's byte order.
    words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))), int(port, 16)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
