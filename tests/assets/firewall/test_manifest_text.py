"""Edits of YAML texts: what is meant comes out, and nothing else moves."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.capi_manifests import go_yaml

from umbilical.assets.firewall.manifest_text import append_items, remove_items, value_at

GO = "a:\n  list:\n  - x: 1\n    y:\n    - 2\n  other: 3\nb: 4\n"
SET_IN = "# top\na:\n  list:\n    - x: 1 # one\n    # between\n    - x: 2\n  # after the list\n  other: 3\n"
MISSING = "a:\n  other: 3\nb: 4\n"


def test_an_item_is_added_as_lines_of_its_own() -> None:
    assert append_items(GO, ("a", "list"), [{"x": 9}]) == GO.replace("    - 2\n", "    - 2\n  - x: 9\n")


def test_comments_and_indentation_stay() -> None:
    text = append_items(SET_IN, ("a", "list"), [{"x": 9}])
    assert text == SET_IN.replace("    - x: 2\n", "    - x: 2\n    - x: 9\n")


def test_a_missing_list_is_made_at_the_end_of_its_mapping() -> None:
    text = append_items(MISSING, ("a", "list"), [{"x": 9}])
    assert text == "a:\n  other: 3\n  list:\n  - x: 9\nb: 4\n"
    assert remove_items(text, ("a", "list"), [0]) == MISSING


@pytest.mark.parametrize("text", [GO, SET_IN])
def test_taking_out_gives_the_text_back(text: str) -> None:
    position = len(yaml.safe_load(text)["a"]["list"])
    added = append_items(text, ("a", "list"), [{"x": 9, "deep": {"list": ["p", "q"]}}, {"x": 10}])
    assert added != text
    assert remove_items(added, ("a", "list"), [position, position + 1]) == text


@pytest.mark.parametrize(
    "text",
    [
        "a: {list: [{x: 1}], other: 3}\n",
        "a:\n  list: []\n",
        "a:\n  list:\n",
        "a:\n  list: null\n  b: 1\n",
        "shared: &s\n- x: 1\na:\n  list: *s\n",
        "a:\n  list:\n  - x: |\n      text\n      more",
    ],
)
def test_texts_that_take_no_lines_still_mean_the_same_afterwards(text: str) -> None:
    before = yaml.safe_load(text)
    after = yaml.safe_load(append_items(text, ("a", "list"), [{"x": 9}]))
    assert after["a"]["list"] == [*(before["a"]["list"] or []), {"x": 9}]
    after["a"]["list"] = before["a"]["list"]
    assert after == before


def test_a_block_scalar_at_the_end_is_not_cut() -> None:
    text = "a:\n  list:\n  - x: |\n      text\n\n      more\nb: 1\n"
    added = append_items(text, ("a", "list"), [{"x": 9}])
    assert yaml.safe_load(added)["a"]["list"][0]["x"] == "text\n\nmore\n"
    assert remove_items(added, ("a", "list"), [1]) == text


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 70000), st.text(max_size=12))
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=6), _VALUES, min_size=1, max_size=3), max_size=4), _VALUES)
def test_any_manifest_of_gos_kind_comes_back_after_the_item_is_taken_out(
    items: list[dict[str, Any]], beside: Any
) -> None:
    text = go_yaml({"kind": "K", "spec": {"beside": beside, "rules": items, "zone": "z"}})
    added = append_items(text, ("spec", "rules"), [{"port": 8091, "from": ["a", "b"]}])
    assert yaml.safe_load(added)["spec"]["rules"] == [*items, {"port": 8091, "from": ["a", "b"]}]
    removed = remove_items(added, ("spec", "rules"), [len(items)])
    meant = yaml.safe_load(text)
    if items:
        assert removed == text
    else:
        del meant["spec"]["rules"]
    assert yaml.safe_load(removed) == meant


def test_a_value_is_found_by_keys_and_positions() -> None:
    assert value_at({"a": [{"b": 7}]}, ("a", 0, "b")) == 7
