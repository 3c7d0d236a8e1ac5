"""The last words of a container, for its status: what it wrote down for that, or the end of its log."""

from pathlib import Path
from typing import Final

# The kubelet's: 4096 bytes of the file; of a log 2048 bytes or 80 lines.
MAX_MESSAGE: Final = 4096
MAX_FROM_LOG: Final = 2048
MAX_LINES: Final = 80


def termination_message(file: Path, log: Path, exit_code: int, *, falls_back_to_log: bool) -> str:
    message = _head(file, MAX_MESSAGE)
    if message or exit_code == 0 or not falls_back_to_log:
        return message
    return "\n".join(_tail(log, MAX_FROM_LOG).splitlines()[-MAX_LINES:])


def _head(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(limit).decode(errors="replace")
    except OSError:
        return ""


def _tail(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - limit))
            return stream.read(limit).decode(errors="replace")
    except OSError:
        return ""
