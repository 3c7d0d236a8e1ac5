"""A network and mount namespace of a test's own: what other tests change meanwhile is not seen, and cannot be met."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from umbilical.host import namespaces
from umbilical.host.namespaces import NamespaceKind

RETURN_SECONDS = 5.0


@contextmanager
def apart() -> Iterator[None]:
    """Put this thread, and all that it starts, into fresh namespaces; come back at the end. Its loopback is down."""
    home = os.getcwd()
    with open("/proc/thread-self/ns/net") as network, open("/proc/thread-self/ns/mnt") as mounts:
        namespaces.unshare(NamespaceKind.MOUNT | NamespaceKind.NETWORK)
        try:
            namespaces.make_private()
            yield
        finally:
            namespaces.enter(network.fileno(), NamespaceKind.NETWORK)
            _return_to(mounts.fileno())
            os.chdir(home)


def _return_to(mounts: int) -> None:
    """Wait until threads that began inside and were joined are gone from the kernel too: until then it refuses."""
    deadline = time.monotonic() + RETURN_SECONDS
    while True:
        try:
            return namespaces.enter(mounts, NamespaceKind.MOUNT)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)
