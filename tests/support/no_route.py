"""A network that this namespace says it cannot reach; only for tests that run in a namespace of their own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NETWORK: Final = "203.0.113.0/24"
"""TEST-NET-3 (RFC 5737): nobody's."""
ADDRESS: Final = "203.0.113.9"
_SECONDS: Final = 20


@contextmanager
def no_route() -> Iterator[str]:
    """Yield an address in it. Another test of the same namespace may have made it unreachable already."""
    subprocess.run(["ip", "route", "replace", "unreachable", NETWORK], check=True, timeout=_SECONDS)
    try:
        yield ADDRESS
    finally:
        subprocess.run(["ip", "route", "del", "unreachable", NETWORK], check=False, timeout=_SECONDS)
