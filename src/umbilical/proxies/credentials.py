"""Who may use a proxy: a file with lines of USER:PASSWORD, read again when it changes and never shown.

A file that cannot be used any more leaves those in force that it held before.
"""

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

from umbilical.fault import StartupError

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1 << 20
MAX_PART_BYTES: Final = 255
"""RFC 1929 has one byte for the length of each."""
_NOBODY: Final = hashlib.sha256(b"").digest()

Stamp = tuple[int, int, int, int, int]


class Credentials:
    def __init__(self, path: Path) -> None:
        """Raises StartupError when the file cannot be used: a proxy must not open its door for want of a list."""
        self._path: Final = path
        self._stamp = _stamp(path)
        self._digests = _read(path)

    def are_valid(self, username: bytes, password: bytes) -> bool:
        """Takes as long for a name that is unknown, or for a password that is nearly right."""
        from hmac import compare_digest

        self._look()
        expected = self._digests.get(username, _NOBODY)
        same = compare_digest(expected, hashlib.sha256(password).digest())
        return same and username in self._digests

    def _look(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digests = _read(self._path)
        except StartupError as fault:
            logger.warning("%s %s: %s; those from before stay", fault.code, fault.what, fault.why)
        else:
            logger.info("credentials are read again: %d users", len(self._digests))


def _read(path: Path) -> dict[bytes, bytes]:
    """Digests of passwords by name: what is kept in memory need not be a password."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _fault(path, error.strerror or str(error)) from None
    if len(text) > MAX_FILE_BYTES:
        raise _fault(path, f"it has more than {MAX_FILE_BYTES} bytes")
    return dict(_parse(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _parse(path: Path, number: int, line: bytes) -> tuple[bytes, bytes]:
    """The line itself is never in an error: it may be a password alone."""
    username, colon, password = line.partition(b":")
    if not colon or not username or not password:
        raise _fault(path, f"line {number} is not USER:PASSWORD")
    if max(len(username), len(password)) > MAX_PART_BYTES:
        raise _fault(path, f"line {number} has more than {MAX_PART_BYTES} bytes before or behind the colon")
    return username, hashlib.sha256(password).digest()


def _fault(path: Path, why: str) -> StartupError:
    remedy = "write one USER:PASSWORD per line, readable for this process alone"
    return StartupError("UMB521", f"cannot use the credentials in {path}", why, remedy)


def _stamp(path: Path) -> Stamp | None:
    """Seen through links: a mounted Secret is replaced by turning one above it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
