"""Files below a root directory that no path can leave: each step is relative to an open directory.

Links in the path are followed as on a machine with this root; a link that leads above the root is an error. The last
part of a path is not followed.
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
"""The kernel's limit for links in one path."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Root:
    """Holds the root open, so that renaming it has no effect."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> "Root":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def write(self, path: str, content: bytes, mode: int, owner: tuple[int, int], *, overwrite: bool) -> bool:
        """Write a file; return whether its owner could be set.

        Raises LabError: the path leaves the root (UMB877), or it exists and must not be replaced (UMB878).
        """
        with self._parent(path) as (folder, name):
            if overwrite:
                _remove(folder, name)
            scratch = f".{secrets.token_hex(8)}"
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                is_owned = _fill(descriptor, content, mode, owner)
                # `link` fails if the name exists by now; `rename` would replace it.
                os.link(scratch, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                raise occupied(path) from None
            finally:
                os.unlink(scratch, dir_fd=folder)
        return is_owned

    def append(self, path: str, content: bytes, mode: int | None, owner: tuple[int, int]) -> bool:
        """Append to a file, or create it; mode None keeps the mode of an existing file."""
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
        """Create a directory; an existing one stays, unless `overwrite` removes it first."""
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
        """Create a symbolic link. Its target is not checked: nothing here follows it out of the root."""
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
        """Return the first bytes of a regular file; None if there is none."""
        try:
            with self._parent(path, create=False) as (folder, name):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as stream:
                    return stream.read(limit) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
        except OSError:
            return None

    @contextmanager
    def _parent(self, path: str, *, create: bool = True) -> Iterator[tuple[int, str]]:
        """Open the parent directory of a path."""
        *folders, name = parts_of(path)
        walk = _Walk(self._fd, path)
        try:
            walk.go(folders, create=create)
            yield walk.here, name
        finally:
            walk.close()


class _Walk:
    """Walks from directory to directory and keeps the parents, for `..` in links."""

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
            raise outside(self._path, "a link in the path leads above the root")
        os.close(self._trail.pop())

    def _target(self, name: str) -> list[str]:
        if not stat.S_ISLNK(_kind(self.here, name) or 0):
            raise outside(self._path, f"{name} in the path is not a directory")
        self._links += 1
        if self._links > MAX_LINKS:
            raise outside(self._path, f"the path has more than {MAX_LINKS} links")
        target = os.readlink(name, dir_fd=self.here)
        if target.startswith("/"):
            while len(self._trail) > 1:
                os.close(self._trail.pop())
        return [part for part in target.split("/") if part not in ("", ".")]


def parts_of(path: str) -> list[str]:
    """Split an absolute path. Raises LabError: it is not absolute and normalised (UMB877)."""
    parts = path.split("/")
    if not path.startswith("/") or path == "/" or any(part in ("", ".", "..") for part in parts[1:]):
        raise outside(path, "it is not an absolute, normalised path")
    try:
        if b"\0" in os.fsencode(path):
            raise outside(path, "it contains a NUL")
    except UnicodeEncodeError:
        raise outside(path, "it is not valid as a file name") from None
    return parts[1:]


def outside(path: str, why: str) -> LabError:
    shown = ascii(path)[1:-1][:200]
    return LabError("UMB877", f"{shown} was not written", why, "create the config again with paths inside the root")


def occupied(path: str) -> LabError:
    return LabError(
        "UMB878",
        f"{path} was not written",
        "it exists, and the config does not set overwrite",
        "set overwrite on the entry, or start with an empty root",
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
    """Write, then chown, then chmod: chown clears set-user-ID bits."""
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
    """Set the owner; return False without root, where the file keeps the current owner."""
    try:
        chown()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True
