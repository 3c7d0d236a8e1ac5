"""A network that this namespace says it cannot reach; only for tests that run in a namespace of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support import kernel_routes

NETWORK: Final = "203.0.113.0/24"
"""TEST-NET-3 (RFC 5737): nobody's."""
ADDRESS: Final = "203.0.113.9"


@contextmanager
def no_route() -> Iterator[str]:
    """Yield an address in it. Another test of the same namespace may have made it unreachable already."""
    kernel_routes.make_unreachable(NETWORK)
    try:
        yield ADDRESS
    finally:
        kernel_routes.forget(NETWORK)
