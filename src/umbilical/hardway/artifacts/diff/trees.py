"""What would be created, changed or removed: artifacts that are there, beside those that should be."""

from collections.abc import Iterable, Mapping

from umbilical.hardway.artifacts.diff.content import compare_content, note_of
from umbilical.hardway.artifacts.diff.part import Change, Part, values
from umbilical.manifests.tree import Asset


def compare_trees(old: Mapping[str, Asset], new: Iterable[Asset]) -> list[Part]:
    """Compare files by path, in the order of their paths."""
    wanted = {asset.path: asset for asset in new}
    pairs = ((path, old.get(path), wanted.get(path)) for path in sorted({*old, *wanted}))
    return [part for path, before, after in pairs for part in _compare(path, before, after)]


def _compare(path: str, before: Asset | None, after: Asset | None) -> Iterable[Part]:
    if before is None or after is None:
        there = before or after
        assert there is not None
        change = Change.CREATED if before is None else Change.REMOVED
        return [Part(path, change, note=note_of(path, there.content))]
    parts = compare_content(path, before.content, after.content)
    if before.mode != after.mode:
        parts = (values("mode", f"{before.mode:04o}", f"{after.mode:04o}"), *parts)
    return [Part(path, Change.CHANGED, parts=parts)] if parts else []
