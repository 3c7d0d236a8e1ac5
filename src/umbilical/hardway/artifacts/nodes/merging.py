"""Merges a node's files, units and SSH keys into a base config: an entry replaces one of the same path or name."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from umbilical.ignition.data_url import format_data_url, gzip
from umbilical.manifests.tree import Asset, AssetTree


@dataclass(frozen=True)
class SystemdUnit:
    name: str
    contents: str
    is_enabled: bool = True


@dataclass
class NodeParts:
    """Files, directories, units and SSH keys of a node, which are merged into its base config."""

    files: AssetTree = field(default_factory=AssetTree)
    """Files by absolute path on the node."""
    directories: dict[str, int] = field(default_factory=dict)
    """Path -> mode."""
    units: list[SystemdUnit] = field(default_factory=list)
    ssh_keys: tuple[str, ...] = ()
    last: AssetTree = field(default_factory=AssetTree)
    """Files that come after all others, including those of the base."""


USER: Final = "core"
UNIT_DIRECTORY: Final = "/etc/systemd/system"
GZIP_BYTES: Final = 16 << 10
"""Files of at least this size are compressed; for smaller ones gzip saves less than a page."""
_KINDS: Final = ("directories", "files", "links")


def merge(base: Mapping[str, Any], parts: NodeParts) -> dict[str, Any]:
    """Keep the base's version, order and unknown fields; an entry of `parts` replaces the base's with the same path."""
    config = copy.deepcopy(dict(base))
    storage = _inner(config, "storage", dict)
    for path, mode in sorted(parts.directories.items()):
        _put(storage, "directories", {"path": path, "mode": mode, "overwrite": False})
    for asset in parts.files:
        _put(storage, "files", _file_entry(asset))
    for asset in parts.last:
        _drop(storage, asset.path)
        _put(storage, "files", _file_entry(asset))
    for unit in parts.units:
        _put_unit(config, unit)
    if parts.ssh_keys:
        _put_user(config, parts.ssh_keys)
    return config


def format_config(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, separators=(",", ":")).encode() + b"\n"


def _inner(parent: dict[str, Any], key: str, kind: type[Any]) -> Any:
    """Return a section of the config; create it if it is absent or null."""
    if not isinstance(parent.get(key), kind):
        parent[key] = kind()
    return parent[key]


def _put(storage: dict[str, Any], kind: str, entry: dict[str, Any]) -> None:
    """Replace the first entry with this path and kind, else append; remove all others with this path."""
    entries = _inner(storage, kind, list)
    place = next((index for index, old in enumerate(entries) if old.get("path") == entry["path"]), None)
    if place is None:
        _drop(storage, entry["path"])
        storage[kind].append(entry)
        return
    entries[place] = entry
    _drop(storage, entry["path"], keep=entry)


def _drop(storage: dict[str, Any], path: str, keep: dict[str, Any] | None = None) -> None:
    for kind in _KINDS:
        if storage.get(kind):
            storage[kind] = [entry for entry in storage[kind] if entry.get("path") != path or entry is keep]


def _file_entry(asset: Asset) -> dict[str, Any]:
    return {"path": asset.path, "mode": asset.mode, "overwrite": True, "contents": _contents(asset.content)}


def _contents(content: bytes) -> dict[str, Any]:
    if len(content) < GZIP_BYTES:
        return {"source": format_data_url(content)}
    return {"compression": "gzip", "source": format_data_url(gzip(content), "application/octet-stream")}


def _put_unit(config: dict[str, Any], unit: SystemdUnit) -> None:
    """Add or replace a unit; drop-ins of the base for it are kept."""
    units = _inner(_inner(config, "systemd", dict), "units", list)
    fields = {"name": unit.name, "enabled": unit.is_enabled, "contents": unit.contents}
    _drop(config["storage"], f"{UNIT_DIRECTORY}/{unit.name}")
    for old in units:
        if old.get("name") == unit.name:
            old.update(fields)
            return
    units.append(fields)


def _put_user(config: dict[str, Any], ssh_keys: tuple[str, ...]) -> None:
    """Add SSH keys to the user; those of the base are kept."""
    users = _inner(_inner(config, "passwd", dict), "users", list)
    user = next((one for one in users if one.get("name") == USER), None)
    if user is None:
        user = {"name": USER}
        users.append(user)
    user["sshAuthorizedKeys"] = list(dict.fromkeys([*(user.get("sshAuthorizedKeys") or []), *ssh_keys]))
