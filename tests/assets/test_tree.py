"""Files that are to be."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.errors import AssetError
from umbilical.assets.tree import SECRET_MODE, AssetTree, yaml_bytes


def test_a_file_is_secret_unless_it_is_said_to_be_public() -> None:
    tree = AssetTree()
    tree.add("/a", b"content")

    assert tree["/a"].mode == SECRET_MODE


def test_nothing_is_overwritten_silently() -> None:
    tree = AssetTree()
    tree.add("/a", b"first")

    with pytest.raises(AssetError) as caught:
        tree.add("/a", b"second")
    assert caught.value.code == "UMB111"
    assert tree["/a"].content == b"first"


def test_files_keep_the_order_in_which_they_were_added() -> None:
    tree = AssetTree()
    for path in ("/z", "/a", "/m"):
        tree.add(path, b"")

    assert [asset.path for asset in tree] == ["/z", "/a", "/m"]
    assert len(tree) == 3
    assert "/m" in tree


def test_content_stays_out_of_repr() -> None:
    tree = AssetTree()
    tree.add("/key", b"-----BEGIN PRIVATE KEY-----")

    assert "PRIVATE" not in repr(tree["/key"])


def test_yaml_keeps_the_order_of_keys_and_sets_lists_in() -> None:
    assert yaml_bytes({"kind": "Pod", "apiVersion": "v1", "items": ["a"]}) == (
        b"kind: Pod\napiVersion: v1\nitems:\n  - a\n"
    )


def test_yaml_has_no_anchors_for_values_that_occur_twice() -> None:
    labels = {"app": "x"}

    assert b"&" not in yaml_bytes({"selector": labels, "template": labels})


def test_a_long_argument_stays_on_its_line() -> None:
    argument = "--agent-identifiers=" + "host=a b&" * 40

    assert yaml_bytes({"args": [argument]}).count(b"\n") == 2


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1), TREES, max_size=4))
def test_what_is_written_is_read_back(value: dict[str, object]) -> None:
    assert yaml.safe_load(yaml_bytes(value)) == value
