"""A place for the files that compare the machine before and after: tests beside them change the machine meanwhile."""

import os
from collections.abc import Iterator

import pytest
from tests.support.apart import apart

from umbilical.lab.netlink import Netlink


@pytest.fixture(scope="module")
def own_machine() -> Iterator[None]:
    """Take the tests of a file, and all that they start, where nobody else changes links, routes, rules or mounts."""
    if os.geteuid():  # nobody but root can change them, so the machine is as good
        yield
        return
    with apart():
        with Netlink() as netlink:
            netlink.set_link("lo", up=True)
        yield
