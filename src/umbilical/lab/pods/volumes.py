"""Volumes of a pod as directories and files of the node: checked, created, filled, and refreshed.

Files are written like the kubelet's atomic writer, so that readers see a new version completely or not at all:
tls.crt -> ..data/tls.crt      ..data -> ..1      ..1/tls.crt
"""

import itertools
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from umbilical.fault import PodWaiting
from umbilical.host import namespaces
from umbilical.lab.pods.node import RunnerNode, Sources
from umbilical.lab.pods.pod_context import pod_field
from umbilical.lab.pods.spec import (
    EmptyDirectory,
    FieldFile,
    HostPath,
    Item,
    KeysOf,
    LabPod,
    PathType,
    ProjectedFiles,
    ServiceAccountToken,
    Volume,
)

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644
_CHECKS: Final[dict[PathType, Callable[[int], bool]]] = {
    PathType.DIRECTORY: stat.S_ISDIR,
    PathType.DIRECTORY_OR_CREATE: stat.S_ISDIR,
    PathType.FILE: stat.S_ISREG,
    PathType.FILE_OR_CREATE: stat.S_ISREG,
    PathType.SOCKET: stat.S_ISSOCK,
    PathType.CHARACTER_DEVICE: stat.S_ISCHR,
    PathType.BLOCK_DEVICE: stat.S_ISBLK,
}


def provide(volume: str, wanted: HostPath) -> Path:
    """Return the path, created if the type allows. Raises PodWaiting: UMB833, missing or of another type."""
    path = Path(wanted.path)
    try:
        _create(path, wanted.type)
        mode = path.stat().st_mode
    except OSError as error:
        raise _refused(volume, wanted, error.strerror or str(error)) from None
    check = _CHECKS.get(wanted.type)
    if check is not None and not check(mode):
        raise _refused(volume, wanted, f"it is not a {wanted.type.value.removesuffix('OrCreate')}")
    return path


def _create(path: Path, kind: PathType) -> None:
    # Without a type the container runtime creates a missing path as a directory.
    if kind in (PathType.DIRECTORY_OR_CREATE, PathType.ANY) and not path.exists():
        path.mkdir(DIRECTORY_MODE, parents=True)
    if kind is PathType.FILE_OR_CREATE and not path.exists():
        path.touch(FILE_MODE)


def _refused(volume: str, wanted: HostPath, why: str) -> PodWaiting:
    return PodWaiting(
        "UMB833",
        f"volume {volume}: hostPath type check failed: {wanted.path}",
        why,
        f"create a {wanted.type.value or 'path'} there; the pod then starts",
        "ContainerCreating",
    )


CURRENT: Final = "..data"
READABLE_BY_GROUP: Final = 0o440


@dataclass(frozen=True)
class WrittenFile:
    content: bytes = field(repr=False)
    mode: int


def write_payload(folder: Path, files: Mapping[str, WrittenFile], group: int | None = None) -> bool:
    """Replace the files of the directory; return whether anything changed.

    With a group (fsGroup), the group owns the files and can read them regardless of their mode.
    """
    if _current(folder) == {path: file.content for path, file in files.items()}:
        return False
    version = _next_version(folder)
    for path, file in files.items():
        _write(version, path, file, group)
    own_by_group(version, group, 0o755)
    old = os.readlink(folder / CURRENT) if (folder / CURRENT).is_symlink() else None
    _point(folder / CURRENT, version.name)
    _show(folder, {path.split("/")[0] for path in files})
    if old is not None:
        shutil.rmtree(folder / old)
    return True


def _current(folder: Path) -> dict[str, bytes] | None:
    data = folder / CURRENT
    if not data.exists():
        return None
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def _next_version(folder: Path) -> Path:
    for number in itertools.count(1):
        version = folder / f"..{number}"
        if not version.exists():
            version.mkdir(parents=True)
            return version
    raise AssertionError("unreachable")


def _write(version: Path, path: str, file: WrittenFile, group: int | None) -> None:
    place = version / path
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(file.content)
    own_by_group(place, group, file.mode if group is None else file.mode | READABLE_BY_GROUP)


def own_by_group(place: Path, group: int | None, mode: int) -> None:
    """Set the mode; with a group (fsGroup), also the group, which new files of a directory inherit."""
    if group is not None and place.is_dir():
        mode |= 0o2070
    if group is not None:
        try:
            os.chown(place, -1, group)
        except OSError:
            # Without root only one group is mapped.
            pass
    place.chmod(mode)


def _point(link: Path, target: str) -> None:
    scratch = link.with_name(f"{link.name}_new")
    scratch.symlink_to(target)
    scratch.replace(link)


def _show(folder: Path, names: set[str]) -> None:
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (folder / name).is_symlink():
            _point(folder / name, f"{CURRENT}/{name}")


# Fraction of a token's lifetime after which the kubelet requests a new one.
TOKEN_USED_UP = 0.8


@dataclass
class _Signed:
    token: str
    until: float


class PodVolumes:
    """The volumes of one pod. `provide` before it starts, `refresh` periodically, `remove` at its end."""

    def __init__(self, pod: LabPod, node: RunnerNode, sources: Sources) -> None:
        self._pod, self._node, self._sources = pod, node, sources
        self._memory = node.folders.secrets / pod.uid
        self._disk = node.folders.pod_files(pod)
        self._tokens: dict[ServiceAccountToken, _Signed] = {}
        self.places: dict[str, Path] = {}

    async def provide(self, addresses: tuple[str, ...], now: float) -> None:
        """Create what is missing. Raises PodWaiting: UMB833 or UMB834; call it again."""
        for volume in self._pod.volumes:
            self.places[volume.name] = await self._provide(volume, addresses, now)

    async def refresh(self, addresses: tuple[str, ...], now: float) -> None:
        """Update files. If a source is gone, the files stay, as under the kubelet."""
        for volume in self._pod.volumes:
            if isinstance(volume.content, ProjectedFiles):
                try:
                    await self._provide(volume, addresses, now)
                except PodWaiting:
                    continue

    def remove(self) -> None:
        for folder in self._memory_directories():
            if folder.is_mount():
                namespaces.unmount(folder, is_lazy=True)
        for folder in (self._memory, self._disk):
            shutil.rmtree(folder, ignore_errors=True)

    async def _provide(self, volume: Volume, addresses: tuple[str, ...], now: float) -> Path:
        content = volume.content
        if isinstance(content, HostPath):
            return provide(volume.name, content)
        if isinstance(content, EmptyDirectory):
            return self._empty(volume.name, content)
        files = await self._files(volume.name, content, addresses, now)
        place = self._memory / "volumes" / volume.name
        place.mkdir(parents=True, exist_ok=True)
        write_payload(place, files, self._pod.group_of_files)
        own_by_group(place, self._pod.group_of_files, 0o755)
        return place

    def _empty(self, name: str, content: EmptyDirectory) -> Path:
        place = (self._memory if content.is_in_memory else self._disk) / "empty" / name
        if not place.exists():
            place.mkdir(parents=True)
            if content.is_in_memory:
                namespaces.mount("tmpfs", place, "tmpfs", options="mode=0777")
            # 0777 as in the kubelet: containers of any user can write.
            own_by_group(place, self._pod.group_of_files, 0o777)
        return place

    def _memory_directories(self) -> list[Path]:
        folder = self._memory / "empty"
        return list(folder.iterdir()) if folder.is_dir() else []

    async def _files(
        self, volume: str, payload: ProjectedFiles, addresses: tuple[str, ...], now: float
    ) -> dict[str, WrittenFile]:
        files: dict[str, WrittenFile] = {}
        for source in payload.sources:
            if isinstance(source, KeysOf):
                files |= await self._keys(volume, source, payload.mode)
            elif isinstance(source, FieldFile):
                text = pod_field(self._pod, source.field.path, self._node.name, self._node.address, addresses)
                files[source.path] = WrittenFile(text.encode(), _mode(source.mode, payload.mode))
            else:
                files[source.path] = WrittenFile((await self._token(volume, source, now)).encode(), payload.mode)
        return files

    async def _keys(self, volume: str, source: KeysOf, mode: int) -> dict[str, WrittenFile]:
        values = await self._sources.values(source.kind, self._pod.namespace, source.name)
        if values is None:
            if source.is_optional:
                return {}
            raise _missing(volume, f"{source.kind.value.lower()} {source.name!r} not found")
        return _chosen(volume, source, values, mode)

    async def _token(self, volume: str, source: ServiceAccountToken, now: float) -> str:
        known = self._tokens.get(source)
        if known is not None and now < known.until:
            return known.token
        token = await self._sources.token(self._pod, source.audience, source.lifetime_seconds)
        if token is None:
            raise _missing(volume, "this lab has no API that issues service account tokens")
        self._tokens[source] = _Signed(token, now + TOKEN_USED_UP * source.lifetime_seconds)
        return token


def _chosen(volume: str, source: KeysOf, values: Mapping[str, bytes], mode: int) -> dict[str, WrittenFile]:
    items = source.items or tuple(Item(key, key) for key in values if is_file_name(key))
    files = {}
    for item in items:
        if item.key not in values:
            if source.is_optional:
                continue
            raise _missing(volume, f"{source.kind.value.lower()} {source.name!r} has no key {item.key!r}")
        files[item.path] = WrittenFile(values[item.key], _mode(item.mode, mode))
    return files


def is_file_name(key: str) -> bool:
    """The API allows only such keys; a file in the daemons' directory may hold others."""
    return bool(key) and "/" not in key and "\0" not in key and not key.startswith("..") and key != "."


def _mode(own: int | None, default: int) -> int:
    return default if own is None else own


def _missing(volume: str, why: str) -> PodWaiting:
    remedy = "create it; the pod then starts"
    return PodWaiting("UMB834", f"MountVolume.SetUp failed for volume {volume!r}", why, remedy, "ContainerCreating")
