"""Differences between two configs: decoded content of files, units, owners and modes. Secrets are guessed by name and
content; only their size may be shown."""

import difflib
import hashlib
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from umbilical.fault import IgnitionError
from umbilical.ignition.config import Config, file_of, objects

_SECRET_NAMES: Final = re.compile(r"kubeconfig|password|passwd|shadow|token|secret|credential", re.IGNORECASE)
_SECRET_SUFFIXES: Final = (".key", "/.docker/config.json")
_SECRET_CONTENT: Final = re.compile(
    rb"PRIVATE KEY-----"
    rb"|client-key-data|pullSecret"
    rb'|"auths?"\s*:'
    # Beginning of every JSON Web Token.
    rb"|eyJhbGciOi"
    rb"""|^[ \t\-{]*["']?kind["']?\s*:\s*["']?Secret\b"""
    # In one-line JSON the kind may be anywhere.
    rb'|"kind"\s*:\s*"Secret"',
    re.MULTILINE,
)
_SECRET_FIELDS: Final = re.compile(r"passwordHash|httpHeaders|keyFile|clevis", re.IGNORECASE)
_REMOTE: Final = re.compile(r"(?:https?|s3|gs|arn):", re.IGNORECASE)


def is_secret_file(path: str, *contents: bytes | None) -> bool:
    is_named_so = path.endswith(_SECRET_SUFFIXES) or _SECRET_NAMES.search(posixpath.basename(path)) is not None
    return is_named_so or any(_SECRET_CONTENT.search(content) for content in contents if content)


def is_secret_field(place: str, value: Any) -> bool:
    return _SECRET_FIELDS.search(place) is not None or _holds_secret(value)


def _holds_secret(value: Any) -> bool:
    """Search the strings of a JSON value; a signed URL is a secret too."""
    if isinstance(value, dict):
        return any(is_secret_field(str(key), member) for key, member in value.items())
    if isinstance(value, list):
        return any(_holds_secret(element) for element in value)
    return isinstance(value, str) and (_is_opaque(value) or is_secret_file("", value.encode("utf-8", "replace")))


def _is_opaque(text: str) -> bool:
    return text.startswith("data:") or ("?" in text and _REMOTE.match(text) is not None)


EntryKind = Literal["file", "unit", "field"]
ChangeKind = Literal["added", "removed", "changed"]

# difflib takes quadratic time; bootkube.sh has about 700 lines.
_MAX_COMPARED_LINES: Final = 20_000
_MAX_COMPARED_BYTES: Final = 1 << 20
# JSON can hold lone surrogates, which UTF-8 cannot encode.
_LENIENT: Final = ("utf-8", "surrogatepass")
_CONTROL: Final = frozenset(map(chr, (*range(32), *range(127, 160)))) - frozenset("\t\n\r")


@dataclass(frozen=True)
class FieldChange:
    name: str
    old: Any
    new: Any
    is_secret: bool = False


@dataclass(frozen=True)
class ContentChange:
    name: str
    """Part of the file or unit: "contents", "append[0]", or the name of a drop-in."""
    old: bytes | None
    new: bytes | None
    is_secret: bool = False

    def lines(self) -> list[str] | None:
        """Return a unified diff; None if a side is not text or too long."""
        old, new = _text_lines(self.old), _text_lines(self.new)
        if old is None or new is None:
            return None
        return list(difflib.unified_diff(old, new, "old", "new", lineterm=""))


@dataclass(frozen=True)
class Difference:
    kind: EntryKind
    place: str
    """Path of a file, name of a unit, or JSON path."""
    change: ChangeKind
    fields: tuple[FieldChange, ...] = ()
    contents: tuple[ContentChange, ...] = ()


def compare(old: Config, new: Config) -> list[Difference]:
    return [
        *_compare_entries("file", _by_name(_files(old), "path"), _by_name(_files(new), "path")),
        *_compare_entries("unit", _by_name(_units(old), "name"), _by_name(_units(new), "name")),
        *_compare_values("", _rest(old), _rest(new)),
    ]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def normalized(value: Any) -> Any:
    """Remove null, empty objects and empty lists."""
    if isinstance(value, dict):
        members = {key: normalized(member) for key, member in value.items()}
        return {key: member for key, member in members.items() if member not in (None, {}, [])}
    if isinstance(value, list):
        return [normalized(element) for element in value]
    return value


def _files(config: Config) -> list[dict[str, Any]]:
    return [file.entry for file in config.files]


def _units(config: Config) -> list[dict[str, Any]]:
    systemd = config.value.get("systemd")
    return objects(systemd, "units") if isinstance(systemd, dict) else []


def _by_name(entries: list[dict[str, Any]], key: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Key entries by name and number, so that a config with duplicates can be compared."""
    seen: defaultdict[str, int] = defaultdict(int)
    named: dict[tuple[str, int], dict[str, Any]] = {}
    for entry in entries:
        name = _string(entry, key)
        named[name, seen[name]] = entry
        seen[name] += 1
    return named


def _rest(config: Config) -> Any:
    """Return the config without the entries that are compared by name."""
    value = dict(config.value)
    for section, key in (("storage", "files"), ("systemd", "units")):
        parent = value.get(section)
        if isinstance(parent, dict) and isinstance(parent.get(key), list):
            value[section] = parent | {key: [entry for entry in parent[key] if not isinstance(entry, dict)]}
    return normalized(value)


def _compare_entries(
    kind: EntryKind, old: Mapping[tuple[str, int], dict[str, Any]], new: Mapping[tuple[str, int], dict[str, Any]]
) -> Iterator[Difference]:
    for key in [*old, *(key for key in new if key not in old)]:
        name, number = key
        place = name if number == 0 else f"{name} (entry {number + 1})"
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        fields, contents = _parts(kind, name, before or {}, after or {})
        if fields or contents or before is None or after is None:
            yield Difference(kind, place, _change(before, after), tuple(fields), tuple(contents))


def _change(before: Any, after: Any) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


def _parts(
    kind: EntryKind, name: str, before: dict[str, Any], after: dict[str, Any]
) -> tuple[list[FieldChange], list[ContentChange]]:
    split = _split_file if kind == "file" else _split_unit
    old_fields, old_contents = split(before)
    new_fields, new_contents = split(after)
    contents = [
        ContentChange(part, old_contents.get(part), new_contents.get(part), is_secret)
        for part in old_contents | new_contents
        if old_contents.get(part) != new_contents.get(part)
        for is_secret in [is_secret_file(name, old_contents.get(part), new_contents.get(part))]
    ]
    return list(_compare_fields(old_fields, new_fields)), contents


def _compare_fields(old: dict[str, Any], new: dict[str, Any]) -> Iterator[FieldChange]:
    for name in old | new:
        before, after = old.get(name), new.get(name)
        if before != after:
            yield FieldChange(name, before, after, is_secret_field(name, before) or is_secret_field(name, after))


def _split_file(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Split an entry into plain fields and decoded contents; undecodable content stays a field."""
    fields = {key: value for key, value in normalized(entry).items() if key not in ("path", "contents", "append")}
    contents: dict[str, bytes] = {}
    appended = [(f"append[{index}]", resource) for index, resource in enumerate(objects(entry, "append"))]
    for name, resource in [("contents", entry.get("contents")), *appended]:
        if normalized(resource) in (None, {}):
            continue
        try:
            contents[name] = file_of({"contents": resource}).content()
        except IgnitionError:
            fields[name] = normalized(resource)
    return fields, contents


def _split_unit(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    fields = {key: value for key, value in normalized(entry).items() if key not in ("name", "contents", "dropins")}
    contents = {
        _string(dropin, "name"): _string(dropin, "contents").encode(*_LENIENT) for dropin in objects(entry, "dropins")
    }
    if entry.get("contents") is not None:
        contents["contents"] = _string(entry, "contents").encode(*_LENIENT)
    return fields, contents


def _string(parent: Mapping[str, Any], key: str) -> str:
    return str(parent.get(key) or "")


def _compare_values(place: str, old: Any, new: Any) -> Iterator[Difference]:
    if old == new and type(old) is type(new):
        return
    if _is_object(old, new) or _is_object(new, old):
        before, after = old or {}, new or {}
        for key in before | after:
            yield from _compare_values(f"{place}.{key}" if place else key, before.get(key), after.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from _compare_values(f"{place}[{index}]", _element(old, index), _element(new, index))
    else:
        is_secret = is_secret_field(place, old) or is_secret_field(place, new)
        yield Difference("field", place, _change(old, new), (FieldChange("", old, new, is_secret),))


def _is_object(value: Any, other: Any) -> bool:
    """An added or removed object is compared by member, for exact JSON paths."""
    return isinstance(value, dict) and (other is None or isinstance(other, dict))


def _element(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _text_lines(content: bytes | None) -> list[str] | None:
    if not content:
        return []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    # Control characters could affect the terminal.
    if len(content) > _MAX_COMPARED_BYTES or not _CONTROL.isdisjoint(text):
        return None
    lines = text.removesuffix("\n").replace("\r", "^M").split("\n")
    if not text.endswith("\n"):
        lines[-1] += " (no newline at end of file)"
    return lines if len(lines) <= _MAX_COMPARED_LINES else None
