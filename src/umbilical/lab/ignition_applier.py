"""A small Ignition: writes a config's directories, files, links and units below a root, as on a first boot.

The config is validated before anything is written. Users and disks are not applied, and a note says so.
"""

import posixpath
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from umbilical.fault import IgnitionError, LabError
from umbilical.ignition.config import Config, File, IgnitionUnit, check_version, faults, file_of, objects, read_config
from umbilical.ignition.data_url import is_data_url
from umbilical.lab.rooted import Root, parts_of

UNITS: Final = "/etc/systemd/system"
PRESET: Final = "/etc/systemd/system-preset/20-ignition.preset"
"""Ignition's preset file of enabled units, which systemd reads at the first boot."""
FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755
MAX_ACCOUNTS_BYTES: Final = 1 << 20
MAX_ACCOUNT: Final = (1 << 32) - 1
"""The kernel uses this number for "do not change"."""
_NOT_APPLIED: Final = (("passwd", "users"), ("passwd", "groups"), ("storage", "disks"), ("storage", "filesystems"))


@dataclass
class AppliedConfig:
    """The written paths in order, and notes about what was not applied."""

    paths: list[str] = field(default_factory=list)
    enabled_units: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Entry:
    """A directory, file or link to write."""

    path: str
    fields: Mapping[str, Any]
    content: bytes | None = None
    appended: tuple[bytes, ...] = ()

    @property
    def mode(self) -> int | None:
        mode = self.fields.get("mode")
        return mode if isinstance(mode, int) else None

    @property
    def overwrite(self) -> bool:
        return self.fields.get("overwrite") is True


def apply_config(content: bytes, root: Path) -> AppliedConfig:
    """Apply a config to a root directory.

    Raises:
        IgnitionError: it is not an Ignition config of a known version.
        LabError: Ignition would refuse it (UMB875), it needs a download (UMB876), a path leaves the root (UMB877), a
            path exists (UMB878), or the root is not writable (UMB879).
    """
    config = read_config(content)
    check_version(config)
    _check(config)
    storage = config.value.get("storage") or {}
    directories = [_plain(entry) for entry in objects(storage, "directories")]
    files = [_file(file) for file in config.files]
    links = [_plain(entry) for entry in objects(storage, "links")]
    units = list(_unit_files(config.units))
    applied = AppliedConfig(notes=list(_left_out(config.value)))
    try:
        with Root(root) as target:
            _Applier(target, applied).run(directories, files, links, config.units, units)
    except OSError as error:
        why = error.strerror or str(error)
        raise LabError("UMB879", f"the config was not applied to {root}", why, f"ls -ld {root}; df {root}") from None
    return applied


class _Applier:
    def __init__(self, root: Root, applied: AppliedConfig) -> None:
        self._root = root
        self._applied = applied
        self._accounts = {
            "user": _accounts(root.read("/etc/passwd", MAX_ACCOUNTS_BYTES)),
            "group": _accounts(root.read("/etc/group", MAX_ACCOUNTS_BYTES)),
        }

    def run(
        self,
        directories: list[_Entry],
        files: list[_Entry],
        links: list[_Entry],
        units: tuple[IgnitionUnit, ...],
        unit_files: list[tuple[str, bytes]],
    ) -> None:
        # Outer directories first, so that inner ones get the modes of the config.
        for entry in sorted(directories, key=lambda entry: entry.path):
            mode = DIRECTORY_MODE if entry.mode is None else entry.mode
            owner = self._owner(entry)
            self._told(entry.path, self._root.make_directory(entry.path, mode, owner, overwrite=entry.overwrite))
        for entry in files:
            self._write(entry)
        for entry in links:
            self._link(entry)
        self._units(units, unit_files)

    def _write(self, entry: _Entry) -> None:
        owner = self._owner(entry)
        if entry.content is not None or not entry.appended:
            mode = FILE_MODE if entry.mode is None else entry.mode
            content = entry.content or b""
            if entry.content is None:
                is_owned = self._root.append(entry.path, b"", entry.mode, owner)
            else:
                is_owned = self._root.write(entry.path, content, mode, owner, overwrite=entry.overwrite)
            self._told(entry.path, is_owned)
        for content in entry.appended:
            self._told(entry.path, self._root.append(entry.path, content, entry.mode, owner))

    def _link(self, entry: _Entry) -> None:
        target = str(entry.fields.get("target") or "")
        if entry.fields.get("hard") is True:
            self._root.hard_link(entry.path, target, overwrite=entry.overwrite)
            self._told(entry.path, True)
        else:
            owner = self._owner(entry)
            self._told(entry.path, self._root.symlink(entry.path, target, owner, overwrite=entry.overwrite))

    def _units(self, units: tuple[IgnitionUnit, ...], files: list[tuple[str, bytes]]) -> None:
        for path, content in files:
            self._told(path, self._root.write(path, content, FILE_MODE, (0, 0), overwrite=True))
        for unit in units:
            if unit.mask:
                path = posixpath.join(UNITS, unit.name)
                self._told(path, self._root.symlink(path, "/dev/null", (0, 0), overwrite=True))
        presets = [
            f"{'enable' if unit.enabled else 'disable'} {unit.name}\n" for unit in units if unit.enabled is not None
        ]
        if presets:
            self._told(PRESET, self._root.append(PRESET, "".join(presets).encode(), FILE_MODE, (0, 0)))
        self._applied.enabled_units += [unit.name for unit in units if unit.enabled and not unit.mask]

    def _owner(self, entry: _Entry) -> tuple[int, int]:
        return self._account(entry, "user"), self._account(entry, "group")

    def _account(self, entry: _Entry, kind: str) -> int:
        wanted = entry.fields.get(kind) or {}
        number, name = wanted.get("id"), wanted.get("name")
        if isinstance(number, int):
            return number
        if not name or name == "root":
            return 0
        if name not in self._accounts[kind]:
            why = f"{entry.path} belongs to the {kind} {name}, which is not in the root's /etc"
            raise LabError("UMB875", "the config was not applied", why, f"add the {kind}, or use its number")
        return self._accounts[kind][name]

    def _told(self, path: str, is_owned: bool) -> None:
        if path not in self._applied.paths:
            self._applied.paths.append(path)
        if not is_owned:
            self._applied.notes.append(f"{path}: the owner was not set; the file belongs to the current user")


def _check(config: Config) -> None:
    remedy = "create the config again with the installer"
    if config.is_pointer:
        why = "it only points to another config, which is downloaded at boot"
        raise LabError("UMB876", "the config was not applied", why, "use the config that it points to")
    found = faults(config) or list(_path_faults(config))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise LabError("UMB875", "the config was not applied", f"{found[0]}{more}", remedy)


def _path_faults(config: Config) -> Iterator[str]:
    """Find errors that Ignition finds only at boot."""
    storage = config.value.get("storage") or {}
    yield from _owner_faults(storage)
    for link in objects(storage, "links"):
        if not isinstance(link.get("target"), str) or not link["target"] or "\0" in link["target"]:
            yield f"{link.get('path')}: the link has no target"
        elif link.get("hard") is True:
            parts_of(link["target"])
    for kind in ("directories", "files", "links"):
        for entry in objects(storage, kind):
            parts_of(str(entry.get("path")))
    for path, _ in _unit_files(config.units):
        parts_of(path)
    for unit in config.units:
        if any(part in "/\n\0" for part in unit.name):
            yield f"{unit.name[:80]!r}: not a valid unit name"


def _owner_faults(storage: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("directories", "files", "links"):
        for entry in objects(storage, kind):
            for account in ("user", "group"):
                number = (entry.get(account) or {}).get("id")
                if number is not None and not 0 <= number < MAX_ACCOUNT:
                    yield f"{entry.get('path')}: the id of the {account} is out of range"


def _plain(entry: Mapping[str, Any]) -> _Entry:
    return _Entry(str(entry["path"]), entry)


def _file(file: File) -> _Entry:
    content = _content(file) if file.source is not None else None
    appended = [file_of({"path": file.path, "contents": resource}) for resource in objects(file.entry, "append")]
    return _Entry(file.path, file.entry, content, tuple(_content(part) for part in appended if part.source is not None))


def _content(file: File) -> bytes:
    if file.source is not None and not is_data_url(file.source):
        scheme = file.source.partition(":")[0][:20]
        why = f"the content of {file.path} is downloaded at boot ({scheme}:)"
        raise LabError("UMB876", "the config was not applied", why, "put the content into the config as a data URL")
    return file.content()


def _unit_files(units: tuple[IgnitionUnit, ...]) -> Iterator[tuple[str, bytes]]:
    for unit in units:
        path = posixpath.join(UNITS, unit.name)
        if unit.contents:
            yield path, unit.contents.encode("utf-8", "replace")
        for name, contents in unit.dropins.items():
            if contents:
                yield f"{path}.d/{name}", contents.encode("utf-8", "replace")


def _accounts(content: bytes | None) -> dict[str, int]:
    rows = [line.split(":") for line in (content or b"").decode("utf-8", "replace").splitlines()]
    return {row[0]: int(row[2]) for row in rows if len(row) > 2 and row[2].isascii() and row[2].isdigit()}


def _left_out(value: Mapping[str, Any]) -> Iterator[str]:
    for room, key in _NOT_APPLIED:
        parent = value.get(room)
        found = parent.get(key) if isinstance(parent, dict) else None
        if isinstance(found, list) and found:
            yield f"{room}.{key} is not applied: {len(found)} entries"


def main() -> int:
    """Apply the config on stdin to the root in the only argument; print one line per note."""
    try:
        applied = apply_config(sys.stdin.buffer.read(), Path(sys.argv[1]))
    except (LabError, IgnitionError) as fault:
        print(fault, file=sys.stderr)
        return 1
    print(f"{len(applied.paths)} paths, enabled units: {', '.join(applied.enabled_units) or 'none'}")
    for note in applied.notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
