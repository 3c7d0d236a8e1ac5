"""Objects as rules find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_everything import usual

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.applied import applied, dig, entries, find, mapping, need, text
from umbilical.assets.hardway.lint.facts import Unreadable

FACTS = usual(Profile.OPENSHIFT).facts()


def test_values_are_reached_by_keys_and_places() -> None:
    value = {"a": [{"b": "c"}]}
    assert dig(value, "a", 0, "b") == "c"
    assert dig(value, "a", 1, "b") is None
    assert (text(value, "a", 0, "b"), text(value, "a")) == ("c", "")
    assert (entries(value, "a"), entries(value, "x")) == ([{"b": "c"}], [])
    assert (mapping(value, "a", 0), mapping(value, "a")) == ({"b": "c"}, {})


def test_objects_have_places_in_the_order_of_file_names() -> None:
    found = applied(FACTS)
    assert [one.place for one in found] == list(range(len(found)))
    assert [one.path for one in found] == sorted(one.path for one in found)
    assert found[0].kind == "Namespace"


def test_an_object_is_found_by_group_and_name() -> None:
    found = need(FACTS, "Network", "cluster", group="operator.openshift.io")
    assert (found.version, str(found)) == ("v1", "Network cluster")
    assert find(FACTS, "Network", "cluster") is None
    secret = need(FACTS, "Secret", "etcd-signer", "openshift-etcd")
    assert str(secret) == "Secret openshift-etcd/etcd-signer"


def test_what_is_not_applied_is_named() -> None:
    with pytest.raises(Unreadable, match=r"no Secret a/b \(c\) is applied"):
        need(FACTS, "Secret", "b", "a", "c")


@given(
    st.recursive(
        st.none() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)
    )
)
def test_digging_in_anything_never_fails(value: object) -> None:
    for path in (("a",), (0,), ("a", 0, "b")):
        found = dig(value, *path)
        assert mapping(value, *path) == (found if isinstance(found, dict) else {})
        assert isinstance(entries(value, *path), list)
        assert isinstance(text(value, *path), str)
