"""Volumes of a pod as directories and files of the node: checked, made, filled, filled again when sources change."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from umbilical.fault import Waiting
from umbilical.host import namespaces
from umbilical.lab.pods.environment import pod_field
from umbilical.lab.pods.host_paths import provide
from umbilical.lab.pods.node import Node, Sources
from umbilical.lab.pods.payload import WrittenFile, own_by_group, write_payload
from umbilical.lab.pods.spec import (
    EmptyDirectory,
    FieldFile,
    HostPath,
    Item,
    KeysOf,
    Payload,
    Pod,
    Token,
    Volume,
)

# Of a token's life: the kubelet asks for a new one then.
TOKEN_USED_UP = 0.8


@dataclass
class _Signed:
    token: str
    until: float


class PodVolumes:
    """The volumes of one pod. `provide` before it starts, `refresh` from time to time, `remove` at its end."""

    def __init__(self, pod: Pod, node: Node, sources: Sources) -> None:
        self._pod, self._node, self._sources = pod, node, sources
        self._memory = node.folders.secrets / pod.uid
        self._disk = node.folders.pod_files(pod)
        self._tokens: dict[Token, _Signed] = {}
        self.places: dict[str, Path] = {}

    async def provide(self, addresses: tuple[str, ...], now: float) -> None:
        """Make everything that is not there yet.

        Raises:
            Waiting: UMB833 or UMB834; to be called again.
        """
        for volume in self._pod.volumes:
            self.places[volume.name] = await self._provide(volume, addresses, now)

    async def refresh(self, addresses: tuple[str, ...], now: float) -> None:
        """Bring files up to date. A source that is gone leaves them as they are: the kubelet keeps them, too."""
        for volume in self._pod.volumes:
            if isinstance(volume.content, Payload):
                try:
                    await self._provide(volume, addresses, now)
                except Waiting:
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
            # 0777 is the kubelet's: whoever the containers run as, this directory is theirs.
            own_by_group(place, self._pod.group_of_files, 0o777)
        return place

    def _memory_directories(self) -> list[Path]:
        folder = self._memory / "empty"
        return list(folder.iterdir()) if folder.is_dir() else []

    async def _files(
        self, volume: str, payload: Payload, addresses: tuple[str, ...], now: float
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

    async def _token(self, volume: str, source: Token, now: float) -> str:
        known = self._tokens.get(source)
        if known is not None and now < known.until:
            return known.token
        token = await self._sources.token(self._pod, source.audience, source.lifetime_seconds)
        if token is None:
            raise _missing(volume, "nobody signs tokens of service accounts here")
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
    """The API lets nothing else in; a file in the daemons' directory may hold anything."""
    return bool(key) and "/" not in key and "\0" not in key and not key.startswith("..") and key != "."


def _mode(own: int | None, default: int) -> int:
    return default if own is None else own


def _missing(volume: str, why: str) -> Waiting:
    remedy = "create it; the pod starts by itself then"
    return Waiting("UMB834", f"MountVolume.SetUp failed for volume {volume!r}", why, remedy, "ContainerCreating")
