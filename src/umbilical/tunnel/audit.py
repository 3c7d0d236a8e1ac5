"""The audit: a JSON line for each tunnel, with its client, endpoint, agent, bytes and end, in a file that is rotated.

A thread writes it (log_queue.py). Records that find no room there, or that the file does not take, are counted.
"""

import errno
import logging
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from umbilical.fault import StartupError
from umbilical.konnectivity.links import Tunnel
from umbilical.tunnel import causes
from umbilical.tunnel.certificate_dates import shown_exactly
from umbilical.tunnel.log_queue import LogQueue, LostLines
from umbilical.tunnel.settings import AuditSettings

logger = logging.getLogger(__name__)

KEPT: Final = 5
"""Full files that are kept, as PATH.1 (the latest) to PATH.5."""
MODE: Final = 0o600
"""Who dials what is for administrators."""
QUEUE_BYTES: Final = 4 << 20
"""About 10,000 records."""
TELL_AGAIN_SECONDS: Final = 60.0


class RotatedFile:
    """The thread's side: a file that is renamed at its maximum size, and opened again if another program renames it."""

    def __init__(self, path: Path, max_bytes: int, lost: LostLines) -> None:
        """Raises OSError."""
        self._path: Final = path
        self._max_bytes: Final = max_bytes
        self._lost: Final = lost
        self._told_at = -TELL_AGAIN_SECONDS
        self._descriptor = _opened(path)
        self._is_rotated: Final = stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def write(self, line: bytes) -> None:
        """Never raises: a full disk must not end a tunnel."""
        try:
            if self._is_rotated:
                self._prepare(len(line))
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._lost.total += line.count(b"\n")
            self._tell(error)

    def _prepare(self, more: int) -> None:
        found = os.fstat(self._descriptor)
        if found.st_size and 0 < self._max_bytes < found.st_size + more:
            for number in range(KEPT, 0, -1):
                before = self._path if number == 1 else _numbered(self._path, number - 1)
                with suppress(FileNotFoundError):
                    os.replace(before, _numbered(self._path, number))
            self._reopen()
        elif not _is_at(self._path, found):
            self._reopen()

    def _reopen(self) -> None:
        descriptor = _opened(self._path)
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _tell(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_AGAIN_SECONDS:
            self._told_at = now
            cause = causes.FailureCause("UMB432", error.strerror or str(error))
            text = "%s audit records are lost file=%s lost=%d: %s"
            logger.warning(text, cause.code, self._path, self._lost.total, cause.text, extra=cause.fields)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        os.close(self._descriptor)


class Audit:
    """The data path's side. `record` costs some microseconds and never waits."""

    def __init__(self, settings: AuditSettings, server_id: str) -> None:
        """Raises StartupError if the file cannot be written."""
        import json  # most servers have no audit

        assert settings.path is not None
        self.lost: Final = LostLines()
        self._server_id: Final = server_id
        self._encode: Final[Callable[[object], str]] = json.JSONEncoder(ensure_ascii=False).encode
        try:
            file = RotatedFile(settings.path, settings.max_bytes, self.lost)
        except OSError as error:
            what = f"cannot write the audit to {settings.path}"
            remedy = f"check the directory: ls -ld {settings.path.parent}"
            raise StartupError("UMB027", what, error.strerror or str(error), remedy) from error
        self._queue: Final = LogQueue(file, self._lost_line, QUEUE_BYTES, self.lost)

    def record(self, tunnel: Tunnel, now: float, cause: str, code: str) -> None:
        """The tunnel is over, or its dial was refused; `now` is the loop's time."""
        end = time.time()
        up, down = tunnel.client.byte_counts()
        self._write(
            {
                "time": shown_exactly(end),
                "event": "tunnel" if tunnel.opened_at else "refused",
                "server": self._server_id,
                "client": tunnel.client.identity() or "unknown",
                "endpoint": tunnel.address,
                "agent": tunnel.link.agent_id if tunnel.link is not None else "",
                "dial": tunnel.dial_id,
                "asked": shown_exactly(end - (now - tunnel.asked_at)),
                "seconds": round(now - tunnel.asked_at, 3),
                "up": up,
                "down": down,
                "end": cause,
                "code": code,
            }
        )

    def _write(self, fields: dict[str, object]) -> None:
        self._queue.write((self._encode(fields) + "\n").encode("utf-8", "replace"))

    def _lost_line(self, count: int) -> bytes:
        fields = {"time": shown_exactly(time.time()), "event": "lost", "server": self._server_id, "records": count}
        return (self._encode(fields) + "\n").encode()

    def close(self) -> None:
        """Wait a second at most for what is queued."""
        self._queue.flush()
        self._queue.close()


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY, MODE)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _is_at(path: Path, found: os.stat_result) -> bool:
    try:
        there = os.stat(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino)
