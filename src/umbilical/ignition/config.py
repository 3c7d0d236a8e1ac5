"""An Ignition config as values: files with their decoded content, units, and whether it is a pointer config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.fault import IgnitionError
from umbilical.ignition.data_url import gunzip, hash_like, is_data_url, parse_data_url
from umbilical.ignition.json_text import decode_text, not_ignition, parse_object
from umbilical.ignition.structure import structure_faults

SUPPORTED_VERSIONS: Final = ("3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0")


@dataclass(frozen=True)
class File:
    """One element of storage.files. A field of the wrong type counts as missing; `faults` reports it."""

    path: str
    mode: int | None
    user: str | None
    group: str | None
    overwrite: bool | None
    source: str | None
    compression: str
    """Empty or "gzip"."""
    hash: str | None
    entry: dict[str, Any]

    def content(self) -> bytes:
        """Decode, decompress and check the content of the entry."""
        if self.source is None:
            raise self._fault("it has no contents.source")
        if not is_data_url(self.source):
            raise self._fault(f"its content is fetched at boot ({self.source.partition(':')[0]}:), not in the config")
        try:
            content = self._decompress(parse_data_url(self.source).content)
            self._check_hash(content)
        except IgnitionError as fault:
            raise self._fault(fault.why) from None
        return content

    def text(self) -> str:
        try:
            return self.content().decode("utf-8")
        except UnicodeDecodeError as fault:
            raise self._fault(f"it is not UTF-8 text: {fault.reason} at byte {fault.start}") from None

    def _decompress(self, payload: bytes) -> bytes:
        if self.compression == "":
            return payload
        if self.compression != "gzip":
            raise self._fault(f"its compression {self.compression!r} is unknown")
        return gunzip(payload)

    def _check_hash(self, content: bytes) -> None:
        if self.hash is not None and self.hash.lower() != hash_like(self.hash, content):
            raise self._fault(f"its hash differs from verification.hash ({self.hash[:14]}...)")

    def _fault(self, why: str) -> IgnitionError:
        remedy = "create the config again with the installer"
        return IgnitionError("UMB142", f"could not read the content of {self.path}", why, remedy)


@dataclass(frozen=True)
class IgnitionUnit:
    name: str
    contents: str | None
    enabled: bool | None
    dropins: dict[str, str]
    mask: bool | None = None


@dataclass(frozen=True)
class Config:
    version: str
    files: tuple[File, ...]
    units: tuple[IgnitionUnit, ...]
    is_pointer: bool
    """Ignition fetches another config at boot, which replaces this one or is merged into it."""
    value: dict[str, Any]

    def file(self, path: str) -> File | None:
        """Return the first entry with this path."""
        return next((file for file in self.files if file.path == path), None)

    def files_at(self, path: str) -> list[File]:
        return [file for file in self.files if file.path == path]


def read_config(content: bytes) -> Config:
    return config_of(parse_object(decode_text(content)))


def config_of(value: dict[str, Any]) -> Config:
    version = _object(value, "ignition").get("version")
    if not isinstance(version, str):
        raise not_ignition("it has no ignition.version")
    files = tuple(file_of(entry) for entry in objects(_object(value, "storage"), "files"))
    units = tuple(_unit(entry) for entry in objects(_object(value, "systemd"), "units"))
    return Config(version, files, units, _is_pointer(_object(value, "ignition")), value)


def check_version(config: Config) -> None:
    if config.version in SUPPORTED_VERSIONS:
        return
    why = f"its version is {config.version[:40]!r}; {SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]} are supported"
    raise IgnitionError(
        "UMB141",
        "could not use the Ignition config: unsupported version",
        why,
        "use a config from an installer of OpenShift 4.6 or newer",
    )


def faults(config: Config) -> list[str]:
    """Return what Ignition would refuse at boot, one line each; empty for a valid config.

    Includes hashes and gzip, which Ignition's own validation does not check before boot.
    """
    found = list(structure_faults(config.value))
    if config.version not in SUPPORTED_VERSIONS:
        found.insert(0, f"ignition.version: {config.version[:40]!r} is not supported")
    return found or [fault for file in config.files for fault in _content_faults(file)]


def objects(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = parent.get(key)
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def _content_faults(file: File) -> list[str]:
    if file.source is None or not is_data_url(file.source):
        return []
    try:
        file.content()
    except IgnitionError as fault:
        return [f"{file.path}: {fault.why}"]
    return []


def file_of(entry: dict[str, Any]) -> File:
    contents = _object(entry, "contents")
    return File(
        path=_string(entry, "path") or "",
        mode=_integer(entry, "mode"),
        user=_string(_object(entry, "user"), "name"),
        group=_string(_object(entry, "group"), "name"),
        overwrite=_boolean(entry, "overwrite"),
        # Ignition treats an empty source as missing.
        source=_string(contents, "source") or None,
        compression=_string(contents, "compression") or "",
        hash=_string(_object(contents, "verification"), "hash"),
        entry=entry,
    )


def _unit(entry: dict[str, Any]) -> IgnitionUnit:
    dropins = {_string(dropin, "name") or "": _string(dropin, "contents") or "" for dropin in objects(entry, "dropins")}
    return IgnitionUnit(
        name=_string(entry, "name") or "",
        contents=_string(entry, "contents"),
        enabled=_boolean(entry, "enabled"),
        dropins=dropins,
        mask=_boolean(entry, "mask"),
    )


def _is_pointer(ignition: Mapping[str, Any]) -> bool:
    parent = _object(ignition, "config")
    # Go's encoding/json writes a missing object as an empty one.
    return any(_string(resource, "source") for resource in [_object(parent, "replace"), *objects(parent, "merge")])


def _object(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _string(parent: Mapping[str, Any], key: str) -> str | None:
    value = parent.get(key)
    return value if isinstance(value, str) else None


def _integer(parent: Mapping[str, Any], key: str) -> int | None:
    value = parent.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _boolean(parent: Mapping[str, Any], key: str) -> bool | None:
    value = parent.get(key)
    return value if isinstance(value, bool) else None
