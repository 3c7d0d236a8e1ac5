"""Each kind reads what its schema describes."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import json_values

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.config_kinds import ADDRESS, NETWORK, ON_OFF, Choice, Constant, Kind, Number, Text, Texts
from umbilical.assets.sections import Section

KINDS: list[Kind] = [
    *(Text("[a-z]+", "letters"), Texts("[a-z]+", "letters"), Number(1, 9), Choice(Profile), ON_OFF, Constant("v1")),
]


def read(kind: Kind, value: Any) -> tuple[Any, list[str]]:
    section = Section({"key": value}, "", [])
    return kind.read(section, "key"), section.problems


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (KINDS[0], "abc", "abc"),
        (KINDS[1], ["a", "b"], ("a", "b")),
        (KINDS[2], 9, 9),
        (KINDS[3], "kubernetes", Profile.KUBERNETES),
        (ON_OFF, True, Switch.ON),
        (ON_OFF, "auto", Switch.AUTO),
        (KINDS[5], "v1", "v1"),
    ],
)
def test_right_values_are_read(kind: Kind, value: Any, meant: Any) -> None:
    assert read(kind, value) == (meant, [])


def test_addresses_and_networks_are_read() -> None:
    assert [str(read(ADDRESS, "10.0.0.1")[0]), str(read(NETWORK, "10.0.0.0/8")[0])] == ["10.0.0.1", "10.0.0.0/8"]
    assert read(ADDRESS, "10.0.0")[1]
    assert read(NETWORK, "10.0.0.1/8")[1]


def test_a_wrong_switch_is_named_by_its_path() -> None:
    section = Section({"key": "maybe"}, "above", [])
    ON_OFF.read(section, "key")
    assert section.problems == ["above.key 'maybe': auto or on or off is needed"]


@given(kind=st.sampled_from(KINDS), value=json_values())
@settings(max_examples=200, deadline=None)
def test_a_kind_and_its_schema_agree_on_any_value(kind: Kind, value: Any) -> None:
    # Absence is the key's matter; JSON takes 3.0 for an integer; Python's $ overlooks a line break.
    if value is None or (isinstance(value, float) and value.is_integer()) or "\n" in repr(value).replace("\\n", "\n"):
        return
    _, problems = read(kind, value)
    assert (not problems) == jsonschema.Draft202012Validator(kind.schema).is_valid(value)
