"""Reads the files of a log bundle once, in order: an archive, an unpacked directory, or a copy of the service records.

The archive is not trusted: nothing is unpacked to disk, links are not followed, paths cannot leave the bundle, and the
number of files and bytes is limited. What cannot be read gets a note, and the rest is used.
"""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from umbilical.bootstrap.analyze.tar_stream import BLOCK, Readable, TarFault, members
from umbilical.checks.report import printable
from umbilical.fault import BootstrapError

# A bundle of a failed installation has some hundred files, and at most a few hundred megabytes unpacked.
MAX_FILES: Final = 100_000
MAX_BYTES: Final = 4 << 30
MAX_NOTES: Final = 20
ROOTS: Final = frozenset({"bootstrap", "control-plane", "rendered-assets", "resources", "unit-status"})
_TOP_FILES: Final = frozenset({"gather.log", "failed-units.txt"})
_GATHERED: Final = re.compile(r"log-bundle-(\d{14})")
_ARCHIVES: Final = "log-bundle-*.tar.gz"
_COPY: Final = 1 << 16
READ_ERRORS: Final = (OSError, EOFError, zlib.error, TarFault)


@dataclass(frozen=True)
class BundleFile:
    """One file. It can be opened once, and only before the iterator moves on."""

    path: str
    """Path in the bundle, without the archive's top directory."""
    open: Callable[[], Readable]


@dataclass
class LogBundle:
    path: Path
    notes: list[str] = field(default_factory=list)
    """What could not be read, and why; shown in the report."""
    gathered_at: datetime | None = None

    def files(self) -> Iterator[BundleFile]:
        """Yield every file once. Ends early, with a note, if the bundle is damaged or over the limits."""
        budget = _Budget()
        try:
            for name, opener in self._entries(budget):
                budget.take_file()
                self._note_time(name)
                path = inner_path(name)
                if path is None:
                    self.note(f"skipped, its path leaves the bundle: {name}")
                else:
                    yield BundleFile(path, _unpacking(opener, budget) if path.endswith(".gz") else opener)
        except READ_ERRORS as error:
            self.note(f"truncated or damaged, the rest is missing: {_reason(error)}")

    def note(self, text: str) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(printable(text)[:300])

    def _entries(self, budget: "_Budget") -> Iterator[tuple[str, Callable[[], Readable]]]:
        if self.path.is_dir():
            return self._directory_entries(budget)
        return self._archive_entries(budget)

    def _archive_entries(self, budget: "_Budget") -> Iterator[tuple[str, Callable[[], Readable]]]:
        self._note_time(self.path.name)
        with open(self.path, "rb") as file:
            if _is_record(file):
                yield self.path.name, lambda: _Bounded(file, budget)
                return
            stream = gzip.GzipFile(fileobj=file) if _is_gzip(file) else file
            for member in members(_Bounded(stream, budget)):
                yield member.name, _opener(member.content)

    def _directory_entries(self, budget: "_Budget") -> Iterator[tuple[str, Callable[[], Readable]]]:
        self._note_time(self.path.resolve().name)
        for folder, folders, names in os.walk(self.path, onerror=lambda error: self.note(_reason(error))):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                opened: list[BinaryIO] = []

                def opener(path: Path = path, opened: list[BinaryIO] = opened) -> Readable:
                    opened.append(_open_regular(path))
                    return _Bounded(opened[0], budget)

                yield str(path.relative_to(self.path)), opener
                for file in opened:
                    file.close()

    def _note_time(self, name: str) -> None:
        """Read the time of the gathering from a name: log-bundle-YYYYMMDDhhmmss."""
        match = _GATHERED.search(name) if self.gathered_at is None else None
        if match is not None:
            try:
                self.gathered_at = datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            except ValueError:
                pass


def open_bundle(path: Path) -> LogBundle:
    """Open the bundle: the path itself, or the newest archive in an install directory.

    Raises BootstrapError: it cannot be read, or is neither a directory nor an archive nor a record.
    """
    try:
        if path.is_dir():
            return LogBundle(_newest_archive(path) or path)
        with open(path, "rb") as file:
            if _is_record(file) or _is_gzip(file) or _is_tar(file):
                return LogBundle(path)
    except OSError as error:
        remedy = "create a log bundle: openshift-install gather bootstrap --dir INSTALL_DIR"
        raise BootstrapError("UMB180", f"could not read {path}", _reason(error), remedy) from error
    raise no_bundle(path, "it is neither a tar archive (plain or gzip) nor a service record")


def no_bundle(path: Path, why: str) -> BootstrapError:
    remedy = "give a log-bundle-*.tar.gz, its unpacked directory, or a copy of /var/log/openshift"
    return BootstrapError("UMB181", f"{path} is not a log bundle", why, remedy)


def inner_path(name: str) -> str | None:
    """Strip the directories above the bundle's own; None for a path that leaves the bundle."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        return None
    for index, part in enumerate(parts):
        if part in ROOTS or (part in _TOP_FILES and index == len(parts) - 1):
            return "/".join(parts[index:])
    return "/".join(parts)


class _Budget:
    def __init__(self) -> None:
        self._bytes = MAX_BYTES
        self._files = MAX_FILES

    def take_file(self) -> None:
        self._files -= 1
        if self._files < 0:
            raise TarFault(f"more than {MAX_FILES} files")

    def take_bytes(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise TarFault(f"more than {MAX_BYTES >> 30} GiB unpacked")


class _Bounded:
    """A stream that counts its bytes against the budget."""

    def __init__(self, stream: Readable, budget: _Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, size: int, /) -> bytes:
        octets = self._stream.read(min(size, _COPY))
        self._budget.take_bytes(len(octets))
        return octets


def _opener(content: Readable) -> Callable[[], Readable]:
    return lambda: content


def _unpacking(opener: Callable[[], Readable], budget: _Budget) -> Callable[[], Readable]:
    def unpacked() -> Readable:
        # GzipFile calls only `read`, despite its annotation. Unpacked bytes count against the budget too.
        return _Bounded(gzip.GzipFile(fileobj=cast(IO[bytes], opener())), budget)

    return unpacked


def _newest_archive(path: Path) -> Path | None:
    """Return the newest archive of an install directory; names sort by time."""
    archives = sorted(found for found in path.glob(_ARCHIVES) if found.is_file())
    return archives[-1] if archives else None


def _open_regular(path: Path) -> BinaryIO:
    # A named pipe would block, and a link can leave the directory.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    return open(descriptor, "rb")


def _head(file: BinaryIO, size: int) -> bytes:
    file.seek(0)
    head = file.read(size)
    file.seek(0)
    return head


def _is_gzip(file: BinaryIO) -> bool:
    return _head(file, 2) == b"\x1f\x8b"


def _is_tar(file: BinaryIO) -> bool:
    return _head(file, BLOCK)[257:262] == b"ustar"


def _is_record(file: BinaryIO) -> bool:
    return _head(file, 64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or ''}: {error.strerror}".removeprefix(": ")
    return str(error) or type(error).__name__
