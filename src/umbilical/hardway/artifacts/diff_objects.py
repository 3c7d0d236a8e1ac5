"""Differences inside a file: objects by field path, certificates by field. Values of keys and secrets are not shown.

Lists of named entries are compared by name, plain lists by entry. An `ArtifactDiff` is one difference.
"""

import base64
import binascii
import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import yaml

from umbilical.ignition.diff import is_secret_field, is_secret_file
from umbilical.pki.certificate import Certificate, distinguished_name, read_certificates
from umbilical.pki.pem import BundleError, holds_key

MAX_SHOWN: Final = 160
"""Maximum length of a shown value, in characters."""
HIDDEN: Final = "differs; not shown because it is secret"


class DiffKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True)
class ArtifactDiff:
    place: str
    """A path, an object or a field, relative to the enclosing difference."""
    change: DiffKind
    old: str | None = None
    new: str | None = None
    """Values as shown; None if there is none or if it is not shown."""
    note: str = ""
    """A text in place of values."""
    lines: tuple[str, ...] = ()
    """Lines of a longer text, as in `diff -u`."""
    parts: tuple["ArtifactDiff", ...] = ()


def change_of(old: object, new: object) -> DiffKind:
    if old is None:
        return DiffKind.CREATED
    return DiffKind.REMOVED if new is None else DiffKind.CHANGED


def values(place: str, old: str | None, new: str | None) -> ArtifactDiff:
    return ArtifactDiff(place, change_of(old, new), old, new)


def as_json(part: ArtifactDiff) -> dict[str, Any]:
    """Return the difference without its empty fields."""
    described: dict[str, Any] = {
        "place": part.place,
        "change": part.change.value,
        "old": part.old,
        "new": part.new,
        "note": part.note,
        "lines": list(part.lines),
        "parts": [as_json(one) for one in part.parts],
    }
    return {name: value for name, value in described.items() if value not in (None, "", [])}


def shortened(text: str) -> str:
    """Shorten a value and escape control characters."""
    cut = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)


_FIELDS: Final[dict[str, Callable[[Certificate], str]]] = {
    "subject": lambda one: distinguished_name(one.subject),
    "issuer": lambda one: distinguished_name(one.issuer),
    "may sign": lambda one: "yes" if one.is_authority else "no",
    "not before": lambda one: f"{one.not_before:%Y-%m-%dT%H:%M:%SZ}",
    "not after": lambda one: f"{one.not_after:%Y-%m-%dT%H:%M:%SZ}",
    "key": lambda one: f"{one.key.title} {one.key.identifier.hex()[:12]}",
    "signer's key": lambda one: (one.authority_identifier or b"").hex()[:12],
    "signed with": lambda one: one.signature_hash,
    "serial": lambda one: f"{one.serial:x}",
}
_LISTS: Final[dict[str, Callable[[Certificate], tuple[str, ...]]]] = {
    "names": lambda one: one.names,
    "usages": lambda one: one.usages,
}
"""Only added and removed entries of these lists are shown, because they are long."""


def compare_certificates(old: bytes | None, new: bytes | None) -> tuple[ArtifactDiff, ...] | None:
    """Compare bundles certificate by certificate; None if a side has no readable certificate."""
    try:
        before, after = _read_bundle(old), _read_bundle(new)
    except BundleError:
        return None
    if len(before) == len(after) == 1:
        return tuple(_fields(before[0], after[0]))
    return tuple(_bundle(before, after))


def described(pem: bytes) -> str:
    """Describe a certificate, or the first one of a bundle, in a few words."""
    found = read_certificates(pem)
    more = f" and {len(found) - 1} more" if found[1:] else ""
    until = f"until {found[0].not_after:%Y-%m-%dT%H:%MZ}"
    return shortened(f"{distinguished_name(found[0].subject)}, {until}, key {_FIELDS['key'](found[0])}{more}")


def _read_bundle(pem: bytes | None) -> list[Certificate]:
    return [] if pem is None else read_certificates(pem)


def _fields(old: Certificate, new: Certificate) -> Iterator[ArtifactDiff]:
    for name, entries in _LISTS.items():
        gone, come = (sorted(set(entries(a)) - set(entries(b))) for a, b in ((old, new), (new, old)))
        if gone or come:
            lines = (*(f"-{shortened(one)}" for one in gone), *(f"+{shortened(one)}" for one in come))
            yield ArtifactDiff(name, DiffKind.CHANGED, lines=lines)
    for name, show in _FIELDS.items():
        before, after = show(old), show(new)
        if before != after:
            yield values(name, shortened(before), shortened(after))


def _bundle(before: list[Certificate], after: list[Certificate]) -> Iterator[ArtifactDiff]:
    """Match the members of bundles by subject; several with one subject are matched by order."""
    old, new = _named_certificates(before), _named_certificates(after)
    for name in old | new:
        one, other = old.get(name), new.get(name)
        if one is not None and other is not None:
            parts = tuple(_fields(one, other))
            if parts:
                yield ArtifactDiff(f"certificate {name}", DiffKind.CHANGED, parts=parts)
        else:
            yield ArtifactDiff(f"certificate {name}", change_of(one, other))


def _named_certificates(certificates: list[Certificate]) -> dict[str, Certificate]:
    named: dict[str, Certificate] = {}
    for one in certificates:
        name = shortened(distinguished_name(one.subject))
        named[name if name not in named else f"{name} ({len(named) + 1})"] = one
    return named


# Names of secret fields in kubeconfigs and Secrets. Only key-data, because certificates end in -data too.
_SECRET_NAMES: Final = re.compile(r"key-data|private|token|password|passwd|secret$|auths?$", re.IGNORECASE)
_SECRET_PARTS: Final = ("data", "stringData")
_MAX_LINES: Final = 20_000
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compare_objects(old: bytes | None, new: bytes | None) -> tuple[ArtifactDiff, ...] | None:
    """Compare YAML documents; None if a side is not readable as such."""
    try:
        before, after = _named(_read(old)), _named(_read(new))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return tuple(_compare_named(before, after))


def _read(content: bytes | None) -> list[Any]:
    found = [] if content is None else [one for one in yaml.load_all(content, _Loader) if one is not None]
    if not all(isinstance(one, dict | list) for one in found):
        raise ValueError("a document is neither an object nor a list")
    return found


def _named(documents: list[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for number, one in enumerate(documents):
        name = _object_name(one)
        named[name if name not in named else f"{name} (document {number + 1})"] = one
    return named


def _object_name(document: Any) -> str:
    """`Secret kube-system/kubeadmin`; empty for a document that is not an API object."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or "kind" not in document:
        return ""
    place = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return shortened(f"{document['kind']} {place}".strip())


def _compare_named(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ArtifactDiff]:
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name == "":
            yield from _compare("", old, new, is_secret=False)
        elif old is None or new is None:
            yield ArtifactDiff(name, change_of(old, new))
        else:
            yield ArtifactDiff(name, DiffKind.CHANGED, parts=tuple(_compare_object(old, new)))


def _compare_object(old: dict[str, Any], new: dict[str, Any]) -> Iterator[ArtifactDiff]:
    """Compare two objects; of a Secret only data and stringData are secret."""
    for key in old | new:
        is_secret = "Secret" in (old.get("kind"), new.get("kind")) and key in _SECRET_PARTS
        yield from _compare(str(key), old.get(key), new.get(key), is_secret=is_secret)


def _compare(place: str, old: Any, new: Any, *, is_secret: bool) -> Iterator[ArtifactDiff]:
    if old == new and type(old) is type(new):
        return
    if _are(dict, old, new):
        yield from _compare_members(place, old or {}, new or {}, is_secret)
    elif _are(list, old, new) and _have_names([*(old or []), *(new or [])]):
        before, after = ({f"[{one['name']}]": one for one in side or []} for side in (old, new))
        for name in before | after:
            yield from _compare(f"{place}{name}", before.get(name), after.get(name), is_secret=is_secret)
    elif _are(list, old, new) and _are_plain([*(old or []), *(new or [])]):
        yield _compare_plain(place, old or [], new or [], is_secret or _is_secret_place(place))
    elif _are(list, old, new):
        for index in range(max(len(old or []), len(new or []))):
            yield from _compare(f"{place}[{index}]", _entry(old, index), _entry(new, index), is_secret=is_secret)
    else:
        yield _compare_values(place, old, new, is_secret)


def _compare_members(place: str, old: dict[Any, Any], new: dict[Any, Any], is_secret: bool) -> Iterator[ArtifactDiff]:
    for key in old | new:
        inner = f"{place}.{key}" if place else str(key)
        yield from _compare(inner, old.get(key), new.get(key), is_secret=is_secret)


def _are(kind: type, old: Any, new: Any) -> bool:
    sides = [side for side in (old, new) if side is not None]
    return bool(sides) and all(isinstance(side, kind) for side in sides)


def _have_names(entries: list[Any]) -> bool:
    return bool(entries) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in entries)


def _are_plain(entries: list[Any]) -> bool:
    return not any(isinstance(one, dict | list) for one in entries)


def _entry(entries: list[Any] | None, index: int) -> Any:
    return entries[index] if entries is not None and index < len(entries) else None


def _compare_plain(place: str, old: list[Any], new: list[Any], is_secret: bool) -> ArtifactDiff:
    change = DiffKind.CHANGED if old and new else change_of(old or None, new or None)
    if is_secret or any(_is_secret_value(one) for one in (*old, *new)):
        return ArtifactDiff(place, change, note=HIDDEN)
    before, after = Counter(map(_text, old)), Counter(map(_text, new))
    lines = [*(f"-{one}" for one in (before - after).elements()), *(f"+{one}" for one in (after - before).elements())]
    return ArtifactDiff(place, change, note="" if lines else "only the order differs", lines=tuple(lines))


def _compare_values(place: str, old: Any, new: Any, is_secret: bool) -> ArtifactDiff:
    shown = [_certificate(side) for side in (old, new)]
    if any(shown) and all(one or side is None for one, side in zip(shown, (old, new), strict=True)):
        return values(place, shown[0], shown[1])
    if is_secret or _is_secret_place(place) or _is_secret_value(old) or _is_secret_value(new):
        return ArtifactDiff(place, change_of(old, new), note=HIDDEN)
    if _are(str, old, new) and "\n" in f"{old}{new}".strip():
        return ArtifactDiff(place, change_of(old, new), lines=text_lines(old or "", new or ""))
    return values(place, *(None if side is None else _text(side) for side in (old, new)))


def text_lines(old: str, new: str) -> tuple[str, ...]:
    """Compare line by line, without the two header lines."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MAX_LINES:
        return ()
    return tuple(shortened(line) for line in list(difflib.unified_diff(before, after, lineterm=""))[2:])


def _text(value: Any) -> str:
    return shortened(value if isinstance(value, str) else json.dumps(value, default=str))


def _is_secret_place(place: str) -> bool:
    return _SECRET_NAMES.search(place.rpartition(".")[2]) is not None


def _is_secret_value(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_secret_place(str(key)) or _is_secret_value(one) for key, one in value.items())
    if isinstance(value, list):
        return any(map(_is_secret_value, value))
    decoded = _decoded(value) if isinstance(value, str) else None
    return is_secret_field("", value) or (decoded is not None and is_secret_file("", decoded))


def _certificate(value: Any) -> str | None:
    """Describe a text that is a certificate, plain or in base64, without a key; else None."""
    if not isinstance(value, str):
        return None
    for pem in (value.encode("utf-8", "replace"), _decoded(value)):
        if pem is None or holds_key(pem) or b"BEGIN CERTIFICATE" not in pem:
            continue
        try:
            return described(pem)
        except BundleError:
            continue
    return None


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode("".join(value.split()), validate=True) if value else None
    except (binascii.Error, ValueError):
        return None
