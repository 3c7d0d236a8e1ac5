"""Typed fields, and what is said of wrong ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import json_values

from umbilical.lab.pods.errors import PodError
from umbilical.lab.pods.fields import Fields


def test_a_wrong_field_is_told_with_the_way_to_it() -> None:
    fields = Fields({"containers": [{"env": [{"name": 7}]}]}, "pod.spec")
    variable = fields.children("containers")[0].children("env")[0]
    with pytest.raises(PodError, match=r"pod\.spec\.containers\[0\]\.env\[0\]\.name"):
        variable.text("name")


def test_missing_fields_have_defaults() -> None:
    fields = Fields({"nothing": None}, "x")
    assert fields.text("nothing", "default") == "default"
    assert fields.number("nothing", 5) == 5
    assert fields.optional_number("nothing") is None
    assert fields.flag("nothing", default=True)
    assert fields.child("nothing") is None
    assert fields.children("nothing") == []
    assert fields.texts("nothing") == ()
    assert fields.table("nothing") == {}
    assert "nothing" not in fields


def test_zero_and_false_are_values() -> None:
    fields = Fields({"number": 0, "flag": False, "text": ""}, "x")
    assert fields.optional_number("number") == 0
    assert fields.flag("flag", default=True) is False
    assert fields.text("text", "default") == ""


def test_true_is_no_number() -> None:
    with pytest.raises(PodError, match="whole number"):
        Fields({"port": True}, "x").number("port", 1)


@given(st.dictionaries(st.sampled_from("ab"), json_values()))
def test_whatever_is_there_is_typed_or_refused(value: dict[str, object]) -> None:
    fields = Fields(value, "x")
    for read in (
        lambda: fields.text("a", ""),
        lambda: fields.name("a"),
        lambda: fields.number("a", 0),
        lambda: fields.flag("a"),
        lambda: fields.child("a"),
        lambda: fields.children("a"),
        lambda: fields.texts("a"),
        lambda: fields.numbers("a"),
        lambda: fields.table("a"),
    ):
        try:
            outcome: object = type(read()).__name__
        except PodError as error:
            outcome = error.code
        assert outcome in ("str", "int", "bool", "Fields", "NoneType", "list", "tuple", "dict", "UMB831")
