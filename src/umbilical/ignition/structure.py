"""The rules of Ignition's validation for files and units.

Not checked, because we do not write them: disks, file systems, users, and the content of unit files.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from umbilical.fault import IgnitionError
from umbilical.ignition.data_url import parse_data_url

MAX_MODE: Final = 0o7777
_NODE_KINDS: Final = ("directories", "files", "links")
_UNIT_DIRECTORY: Final = "/etc/systemd/system"
_UNIT_EXTENSIONS: Final = frozenset(
    {
        ".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".snapshot",
        ".slice", ".scope",
    }
)  # fmt: skip
# The minor version of the spec that introduced each.
_SCHEMES: Final = {"data": 0, "http": 0, "https": 0, "tftp": 0, "s3": 0, "gs": 2, "arn": 4}
_HASH_LENGTHS: Final = {"sha512": (128, 0), "sha256": (64, 1)}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_INT64: Final = range(-(1 << 63), 1 << 63)
_TYPE_NAMES: Final = {str: "a string", int: "an integer", bool: "true or false", dict: "an object", list: "a list"}


class _Node(NamedTuple):
    """A file, directory or link, with a label for messages."""

    kind: str
    label: str
    entry: dict[str, Any]

    @property
    def path(self) -> str:
        return _string(self.entry, "path")


def structure_faults(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per fault, beginning with the path."""
    minor = _minor_version(value)
    storage, systemd = value.get("storage"), value.get("systemd")
    yield from _type_faults("storage", value, {"storage": dict})
    yield from _type_faults("systemd", value, {"systemd": dict})
    nodes = list(_nodes(storage)) if isinstance(storage, dict) else []
    yield from _list_faults("storage", storage, _NODE_KINDS)
    for node in nodes:
        yield from _node_faults(node, minor)
    yield from _path_conflicts(nodes, _unit_paths(systemd))
    yield from _list_faults("systemd", systemd, ("units",))
    yield from _units_faults(systemd)


def _minor_version(value: Mapping[str, Any]) -> int:
    ignition = value.get("ignition")
    version = ignition.get("version") if isinstance(ignition, dict) else None
    match = re.fullmatch(r"3\.(\d)\.\d", version) if isinstance(version, str) else None
    return int(match[1]) if match else 0


def _objects(parent: Any, key: str) -> list[tuple[int, dict[str, Any]]]:
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, list):
        return []
    return [(index, element) for index, element in enumerate(value) if isinstance(element, dict)]


def _string(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def _nodes(storage: Mapping[str, Any]) -> Iterator[_Node]:
    for kind in _NODE_KINDS:
        for index, entry in _objects(storage, kind):
            yield _Node(kind, _string(entry, "path") or f"storage.{kind}[{index}]", entry)


def _list_faults(place: str, parent: Any, keys: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(parent, dict):
        return
    for key in keys:
        yield from _type_faults(place, parent, {key: list})
        value = parent.get(key)
        for index, element in enumerate(value if isinstance(value, list) else []):
            if not isinstance(element, dict):
                yield f"{place}.{key}[{index}]: must be an object"


def _type_faults(place: str, parent: Mapping[str, Any], types: Mapping[str, type]) -> Iterator[str]:
    """Null counts as missing."""
    for key, expected in types.items():
        value = parent.get(key)
        if value is None:
            continue
        # bool is a subclass of int in Python.
        is_right = isinstance(value, expected) and not (expected is int and isinstance(value, bool))
        if not is_right or (expected is int and value not in _INT64):
            yield f"{place}: {key} must be {_TYPE_NAMES[expected]}"


def _node_faults(node: _Node, minor: int) -> Iterator[str]:
    entry, label = node.entry, node.label
    yield from _type_faults(label, entry, {"path": str, "overwrite": bool, "user": dict, "group": dict})
    yield from _path_faults(node)
    for owner in ("user", "group"):
        yield from _owner_faults(f"{label}: {owner}", entry.get(owner))
    if node.kind != "links":
        yield from _mode_faults(label, entry)
    if node.kind == "files":
        yield from _file_faults(label, entry, minor)


def _path_faults(node: _Node) -> Iterator[str]:
    if not node.path:
        yield f"{node.label}: it has no path"
    elif not node.path.startswith("/"):
        yield f"{node.label}: the path is not absolute"
    # normpath keeps two leading slashes, a POSIX rule that Ignition does not have.
    elif posixpath.normpath(node.path) != node.path or node.path.startswith("//"):
        yield f"{node.label}: the path is not normalized"


def _owner_faults(label: str, owner: Any) -> Iterator[str]:
    if not isinstance(owner, dict):
        return
    yield from _type_faults(label, owner, {"id": int, "name": str})
    if owner.get("id") is not None and owner.get("name"):
        yield f"{label} has both an id and a name"


def _mode_faults(label: str, entry: Mapping[str, Any]) -> Iterator[str]:
    yield from _type_faults(label, entry, {"mode": int})
    mode = entry.get("mode")
    if isinstance(mode, int) and not 0 <= mode <= MAX_MODE:
        yield f"{label}: the mode is not between 0 and {MAX_MODE} (0{MAX_MODE:o})"


def _file_faults(label: str, entry: Mapping[str, Any], minor: int) -> Iterator[str]:
    yield from _type_faults(label, entry, {"contents": dict})
    yield from _list_faults(label, entry, ("append",))
    contents = entry.get("contents")
    source = contents.get("source") if isinstance(contents, dict) else None
    if entry.get("overwrite") is True and source is None:
        yield f"{label}: overwrite is true, but there is no contents.source"
    if isinstance(contents, dict):
        yield from _resource_faults(f"{label}: contents", contents, minor)
    for index, appended in _objects(entry, "append"):
        yield from _resource_faults(f"{label}: append[{index}]", appended, minor)


def _resource_faults(label: str, resource: Mapping[str, Any], minor: int) -> Iterator[str]:
    yield from _type_faults(label, resource, {"source": str, "compression": str, "verification": dict})
    source = resource.get("source")
    if isinstance(source, str) and source:
        yield from _source_faults(f"{label}.source", source, minor)
    if resource.get("compression") not in (None, "", "gzip"):
        yield f"{label}.compression is neither gzip nor empty"
    verification = resource.get("verification")
    digest = verification.get("hash") if isinstance(verification, dict) else None
    if digest is not None:
        yield from _hash_faults(f"{label}.verification.hash", digest, minor)
        if source is None:
            yield f"{label}.verification.hash has no source to check"


def _source_faults(label: str, source: str, minor: int) -> Iterator[str]:
    match = _SCHEME.match(source)
    scheme = match[1].lower() if match else ""
    if _SCHEMES.get(scheme, minor + 1) > minor:
        yield f"{label}: its scheme is not in this version of the spec"
    elif scheme == "data":
        try:
            parse_data_url(source)
        except IgnitionError as fault:
            yield f"{label}: {fault.why}"


def _hash_faults(label: str, digest: Any, minor: int) -> Iterator[str]:
    kind, _, digits = digest.partition("-") if isinstance(digest, str) else ("", "", "")
    length, since = _HASH_LENGTHS.get(kind, (0, 0))
    if length == 0 or since > minor:
        yield f"{label}: its algorithm is not in this version of the spec"
    elif len(digits) != length:
        yield f"{label}: {kind} has {length} hex digits, not {len(digits)}"


def _path_conflicts(nodes: list[_Node], unit_paths: set[str]) -> Iterator[str]:
    links = {node.path for node in nodes if node.kind == "links"}
    seen: set[str] = set()
    for node in nodes:
        if node.path in seen:
            yield f"{node.label}: the path is used twice by files, directories and links"
        seen.add(node.path)
        if node.path in unit_paths:
            yield f"{node.label}: systemd.units writes the same file"
        if not links.isdisjoint(_parents(node.path)):
            yield f"{node.label}: it is below a path that is a link"


def _parents(path: str) -> list[str]:
    # Bounds the time for a path with a million slashes.
    parts = path.split("/")[:100]
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def _unit_paths(systemd: Any) -> set[str]:
    paths: set[str] = set()
    for _, unit in _objects(systemd, "units"):
        path = f"{_UNIT_DIRECTORY}/{unit.get('name')}"
        if unit.get("contents"):
            paths.add(path)
        paths.update(
            f"{path}.d/{dropin.get('name')}" for _, dropin in _objects(unit, "dropins") if dropin.get("contents")
        )
    return paths


def _units_faults(systemd: Any) -> Iterator[str]:
    seen: set[str] = set()
    for index, unit in _objects(systemd, "units"):
        name = _string(unit, "name")
        label = name or f"systemd.units[{index}]"
        yield from _type_faults(label, unit, {"name": str, "contents": str, "enabled": bool, "mask": bool})
        if _extension(name) not in _UNIT_EXTENSIONS:
            yield f"{label}: the name has no extension of a unit"
        if name in seen:
            yield f"{label}: the unit is defined twice"
        seen.add(name)
        yield from _list_faults(label, unit, ("dropins",))
        yield from _dropin_faults(label, unit)


def _dropin_faults(label: str, unit: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    for index, dropin in _objects(unit, "dropins"):
        name = _string(dropin, "name")
        yield from _type_faults(f"{label}: dropins[{index}]", dropin, {"name": str, "contents": str})
        if _extension(name) != ".conf":
            yield f"{label}: the name of dropins[{index}] does not end in .conf"
        if name in seen:
            yield f"{label}: the drop-in {name} is defined twice"
        seen.add(name)


def _extension(name: str) -> str:
    tail = name.rpartition("/")[2]
    return tail[tail.rfind(".") :] if "." in tail else ""
