"""A network for the files that compare the machine before and after: tests beside them change its own meanwhile."""

import os
from collections.abc import Iterator

import pytest

from umbilical.host import namespaces
from umbilical.lab.netlink import Netlink


@pytest.fixture(scope="module")
def own_network() -> Iterator[None]:
    """Take the tests of a file, and all that they start, into a new network namespace; come back at the end."""
    if os.geteuid():  # nobody but root changes the machine's network, so it is as good
        yield
        return
    with open("/proc/thread-self/ns/net") as outside:
        namespaces.unshare(namespaces.Kind.NETWORK)
        try:
            with Netlink() as netlink:
                netlink.set_link("lo", up=True)
            yield
        finally:
            namespaces.enter(outside.fileno(), namespaces.Kind.NETWORK)
