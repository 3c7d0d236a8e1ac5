"""Compares existing artifacts with rendered ones: what would be created, changed or removed.

The file name decides how a file is compared; of Ignition configs the decoded files and units are compared.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts.diff_objects import (
    HIDDEN,
    ArtifactDiff,
    DiffKind,
    change_of,
    compare_certificates,
    compare_objects,
    described,
    shortened,
    text_lines,
    values,
)
from umbilical.ignition.config import Config, read_config
from umbilical.ignition.diff import ContentChange, Difference, FieldChange, compare, is_secret_file
from umbilical.manifests.tree import Asset
from umbilical.pki.pem import BundleError, holds_key

Comparer = Callable[[str, bytes | None, bytes | None], tuple[ArtifactDiff, ...]]
"""Compares two contents of the file with this path."""

_CHANGES = {"added": DiffKind.CREATED, "removed": DiffKind.REMOVED, "changed": DiffKind.CHANGED}
_EMPTY = b'{"ignition":{"version":"3.4.0"}}'


def compare_ignition(old: bytes | None, new: bytes | None, inside: Comparer) -> tuple[ArtifactDiff, ...] | None:
    """Compare Ignition configs; None if a side is not a valid one."""
    try:
        before, after = _read(old), _read(new)
    except IgnitionError:
        return None
    return tuple(_part(one, inside) for one in compare(before, after))


def _read(content: bytes | None) -> Config:
    return read_config(_EMPTY if content is None else content)


def _part(difference: Difference, inside: Comparer) -> ArtifactDiff:
    change = _CHANGES[difference.change]
    if difference.kind == "field":
        (field,) = difference.fields
        return _field(difference.place, change, field)
    place = f"{difference.kind} {shortened(difference.place)}"
    if change is not DiffKind.CHANGED:
        return ArtifactDiff(place, change)
    return ArtifactDiff(place, change, parts=tuple(_inner(difference, inside)))


def _inner(difference: Difference, inside: Comparer) -> Iterator[ArtifactDiff]:
    for field in difference.fields:
        yield _field(field.name, DiffKind.CHANGED, field)
    for content in difference.contents:
        yield from _content(difference, content, inside)


def _content(difference: Difference, content: ContentChange, inside: Comparer) -> Iterator[ArtifactDiff]:
    if difference.kind == "file" and content.name == "contents":
        yield from inside(difference.place, content.old, content.new)
    elif content.is_secret:
        yield ArtifactDiff(content.name, DiffKind.CHANGED, note=HIDDEN)
    else:
        yield ArtifactDiff(content.name, DiffKind.CHANGED, lines=tuple((content.lines() or [])[2:]))


def _field(place: str, change: DiffKind, field: FieldChange) -> ArtifactDiff:
    if field.is_secret:
        return ArtifactDiff(shortened(place), change, note=HIDDEN)
    old, new = (_shown(place, side) for side in (field.old, field.new))
    return ArtifactDiff(shortened(place), change, old, new)


def _shown(name: str, value: Any) -> str | None:
    if value is None:
        return None
    # Ignition writes modes in decimal; users expect octal.
    return f"{value:04o}" if name == "mode" and isinstance(value, int) else shortened(str(value))


_OBJECTS: Final = (".yaml", ".yml", ".json", ".kubeconfig")
_KUBECONFIGS: Final = ("kubeconfig",)
FORMATTING: Final = "only the formatting differs"


def compare_content(path: str, old: bytes | None, new: bytes | None) -> tuple[ArtifactDiff, ...]:
    """Return the differences inside; empty if the bytes are equal."""
    if old == new:
        return ()
    suffix = posixpath.splitext(path)[1]
    if suffix == ".key" or any(holds_key(side) for side in (old, new) if side):
        return (ArtifactDiff("key", change_of(old, new), note="key differs"),)
    if suffix == ".pub":
        return (ArtifactDiff("public key", change_of(old, new), note="public key differs"),)
    found: tuple[ArtifactDiff, ...] | None = None
    if suffix == ".crt":
        found = compare_certificates(old, new)
    elif suffix == ".ign":
        found = compare_ignition(old, new, compare_content)
    elif suffix in _OBJECTS or posixpath.basename(path) in _KUBECONFIGS:
        found = compare_objects(old, new)
    if found is None:
        return (_compare_text(path, old, new),)
    return found or (ArtifactDiff("text", change_of(old, new), note=FORMATTING),)


def note_of(path: str, content: bytes) -> str:
    """Describe a created or removed file; empty if its path is enough."""
    if not path.endswith(".crt"):
        return ""
    try:
        return described(content)
    except BundleError:
        return ""


def _compare_text(path: str, old: bytes | None, new: bytes | None) -> ArtifactDiff:
    change = change_of(old, new)
    if is_secret_file(path, old, new):
        return ArtifactDiff("content", change, note=HIDDEN)
    try:
        lines = text_lines((old or b"").decode(), (new or b"").decode())
    except UnicodeDecodeError:
        lines = ()
    sizes = f"{len(old or b'')} -> {len(new or b'')} bytes"
    return (
        ArtifactDiff("content", change, lines=lines)
        if lines
        else ArtifactDiff("content", change, note=f"{sizes}, not shown")
    )


def compare_trees(old: Mapping[str, Asset], new: Iterable[Asset]) -> list[ArtifactDiff]:
    """Compare files by path, sorted by path."""
    wanted = {asset.path: asset for asset in new}
    pairs = ((path, old.get(path), wanted.get(path)) for path in sorted({*old, *wanted}))
    return [part for path, before, after in pairs for part in _compare(path, before, after)]


def _compare(path: str, before: Asset | None, after: Asset | None) -> Iterable[ArtifactDiff]:
    if before is None or after is None:
        there = before or after
        assert there is not None
        change = DiffKind.CREATED if before is None else DiffKind.REMOVED
        return [ArtifactDiff(path, change, note=note_of(path, there.content))]
    parts = compare_content(path, before.content, after.content)
    if before.mode != after.mode:
        parts = (values("mode", f"{before.mode:04o}", f"{after.mode:04o}"), *parts)
    return [ArtifactDiff(path, DiffKind.CHANGED, parts=parts)] if parts else []
