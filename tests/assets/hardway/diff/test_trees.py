"""Created, changed, removed."""

from umbilical.assets.hardway.diff.part import Change
from umbilical.assets.hardway.diff.trees import compare_trees
from umbilical.assets.tree import Asset


def test_files_are_compared_in_the_order_of_their_paths() -> None:
    old = {one.path: one for one in (Asset("a", b"1", 0o644), Asset("b", b"1", 0o644), Asset("same", b"1", 0o600))}
    new = [Asset("same", b"1", 0o600), Asset("c", b"1", 0o644), Asset("b", b"2", 0o644)]
    parts = compare_trees(old, new)
    assert [(part.place, part.change) for part in parts] == [
        ("a", Change.REMOVED),
        ("b", Change.CHANGED),
        ("c", Change.CREATED),
    ]
    assert parts[1].parts[0].lines[-2:] == ("-1", "+2")


def test_a_mode_is_a_difference() -> None:
    (part,) = compare_trees({"a": Asset("a", b"1", 0o644)}, [Asset("a", b"1", 0o600)])
    assert [(one.place, one.old, one.new) for one in part.parts] == [("mode", "0644", "0600")]


def test_nothing_differs_from_itself() -> None:
    asset = Asset("a", b"1", 0o644)
    assert compare_trees({"a": asset}, [asset]) == []
