"""Files below a root that nothing can leave: every step is taken from an open directory, never by a whole path.

Links on the way are followed as a machine with this root would follow them, absolute ones from the root; one that
climbs above it is refused. The last part of a path is never followed.
"""

import errno
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from umbilical.fault import LabError

DIRECTORY_MODE: Final = 0o755
MAX_LINKS: Final = 40
"""The kernel's own bound for links on one way."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Root:
    """Hold the root open: renaming it meanwhile changes nothing."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> "Root":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def write(self, path: str, content: bytes, mode: int, owner: tuple[int, int], *, overwrite: bool) -> bool:
        """Write a whole file; tell whether it could be given to its owner.

        Raises LabError: the path leaves the root (UMB877), or something lies there and must stay (UMB878).
        """
        with self._parent(path) as (folder, name):
            if overwrite:
                _remove(folder, name)
            scratch = f".{secrets.token_hex(8)}"
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                is_owned = _fill(descriptor, content, mode, owner)
                # A link fails where a rename would replace what has come there meanwhile.
                os.link(scratch, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                raise occupied(path) from None
            finally:
                os.unlink(scratch, dir_fd=folder)
        return is_owned

    def append(self, path: str, content: bytes, mode: int | None, owner: tuple[int, int]) -> bool:
        """Write behind what is there, or begin the file; a mode of None keeps that of a file that exists."""
        with self._parent(path) as (folder, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            existed = _kind(folder, name) is not None
            try:
                descriptor = os.open(name, flags, 0o600, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                    raise occupied(path) from None
                raise
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise occupied(path)
            kept = stat.S_IMODE(os.fstat(descriptor).st_mode) if existed else 0o644
            return _fill(descriptor, content, kept if mode is None else mode, owner)

    def make_directory(self, path: str, mode: int, owner: tuple[int, int], *, overwrite: bool) -> bool:
        """Make a directory; one that is there stays, unless `overwrite` empties its place first."""
        with self._parent(path) as (folder, name):
            if overwrite:
                _remove(folder, name)
            try:
                os.mkdir(name, 0o700, dir_fd=folder)
            except FileExistsError:
                if not stat.S_ISDIR(_kind(folder, name) or 0):
                    raise occupied(path) from None
            descriptor = os.open(name, _DIRECTORY, dir_fd=folder)
            return _fill(descriptor, b"", mode, owner)

    def symlink(self, path: str, target: str, owner: tuple[int, int], *, overwrite: bool) -> bool:
        """Make a link; what it says is not looked at, since nothing here follows it out of the root."""
        with self._parent(path) as (folder, name):
            if overwrite:
                _remove(folder, name)
            try:
                os.symlink(target, name, dir_fd=folder)
            except FileExistsError:
                raise occupied(path) from None
            return _give(lambda: os.chown(name, *owner, dir_fd=folder, follow_symlinks=False))

    def hard_link(self, path: str, target: str, *, overwrite: bool) -> None:
        with self._parent(target) as (source, old), self._parent(path) as (folder, name):
            if overwrite:
                _remove(folder, name)
            try:
                os.link(old, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                raise occupied(path) from None

    def read(self, path: str, limit: int) -> bytes | None:
        """Return a regular file's first bytes; None where there is none."""
        try:
            with self._parent(path, create=False) as (folder, name):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as stream:
                    return stream.read(limit) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
        except OSError:
            return None

    @contextmanager
    def _parent(self, path: str, *, create: bool = True) -> Iterator[tuple[int, str]]:
        """Open the directory that a path lies in."""
        *folders, name = parts_of(path)
        walk = _Walk(self._fd, path)
        try:
            walk.go(folders, create=create)
            yield walk.here, name
        finally:
            walk.close()


class _Walk:
    """Goes from directory to directory and knows the way back, since `..` of a link leads there."""

    def __init__(self, root: int, path: str) -> None:
        self._path = path
        self._trail = [os.dup(root)]
        self._links = 0

    @property
    def here(self) -> int:
        return self._trail[-1]

    def go(self, folders: list[str], *, create: bool) -> None:
        ahead = deque(folders)
        while ahead:
            name = ahead.popleft()
            if name == "..":
                self._climb()
                continue
            try:
                self._trail.append(os.open(name, _DIRECTORY, dir_fd=self.here))
            except FileNotFoundError:
                if not create:
                    raise
                os.mkdir(name, DIRECTORY_MODE, dir_fd=self.here)
                self._trail.append(os.open(name, _DIRECTORY, dir_fd=self.here))
                os.fchmod(self.here, DIRECTORY_MODE)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                ahead.extendleft(reversed(self._target(name)))

    def close(self) -> None:
        while self._trail:
            os.close(self._trail.pop())

    def _climb(self) -> None:
        if len(self._trail) == 1:
            raise outside(self._path, "a link on the way climbs above the root")
        os.close(self._trail.pop())

    def _target(self, name: str) -> list[str]:
        if not stat.S_ISLNK(_kind(self.here, name) or 0):
            raise outside(self._path, f"{name} on the way is no directory")
        self._links += 1
        if self._links > MAX_LINKS:
            raise outside(self._path, f"more than {MAX_LINKS} links lie on the way")
        target = os.readlink(name, dir_fd=self.here)
        if target.startswith("/"):
            while len(self._trail) > 1:
                os.close(self._trail.pop())
        return [part for part in target.split("/") if part not in ("", ".")]


def parts_of(path: str) -> list[str]:
    """Split an absolute path; refuse one that names no file, or a way back. Raises LabError: UMB877."""
    parts = path.split("/")
    if not path.startswith("/") or path == "/" or any(part in ("", ".", "..") for part in parts[1:]):
        raise outside(path, "it is no absolute path in its shortest form")
    try:
        if b"\0" in os.fsencode(path):
            raise outside(path, "it holds a NUL")
    except UnicodeEncodeError:
        raise outside(path, "it cannot be written as a file name") from None
    return parts[1:]


def outside(path: str, why: str) -> LabError:
    shown = ascii(path)[1:-1][:200]
    return LabError(
        "UMB877", f"{shown} is not written", why, "make the config again with paths that stay on the machine"
    )


def occupied(path: str) -> LabError:
    return LabError(
        "UMB878",
        f"{path} is not written",
        "something lies there, and the config does not say that it may be replaced",
        "set overwrite on the entry, or start with a fresh root",
    )


def _kind(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _remove(folder: int, name: str) -> None:
    kind = _kind(folder, name)
    if kind is None:
        return
    if stat.S_ISDIR(kind):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _fill(descriptor: int, content: bytes, mode: int, owner: tuple[int, int]) -> bool:
    """Write, then give away, then set the mode: giving away clears what a mode may have of set-user bits."""
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        is_owned = _give(lambda: os.fchown(descriptor, *owner))
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
    return is_owned


def _give(chown: Callable[[], None]) -> bool:
    """Without root only one owner exists; a file of the wrong owner is better than none, and it is told."""
    try:
        chown()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True
