"""Limits of open files, as tests set them for a moment."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_left(limit: int) -> Iterator[None]:
    """For a moment, no file gets this number or a higher one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_descriptors() -> Iterator[int]:
    """Not one more file can be opened in this process; the value is the limit.

    The limit is the lowest free number and not 0: `poll` of any thread fails where the limit is below what it watches.
    """
    lowest_free = os.dup(0)
    os.close(lowest_free)
    with files_left(lowest_free):
        yield lowest_free
