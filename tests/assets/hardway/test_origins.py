"""Values and where they come from."""

import ipaddress

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.origins import Origin, Origins, Value, nested


def test_what_is_given_wins() -> None:
    origins = Origins({"a": 1})
    assert (origins.take("a", 2), origins.take("b", 2), origins.take("c", 3, "b")) == (1, 2, 3)
    assert [one.origin for one in origins.values] == [Origin.GIVEN, Origin.DEFAULT, Origin.COMPUTED]


def test_a_value_can_be_given_under_another_path() -> None:
    origins = Origins({"list[0].x": 5})
    assert origins.take("node.x", 1, given_as="list[0].x") == 5
    assert origins.values == (Value("node.x", 5, Origin.GIVEN, "list[0].x"),)
    assert origins.is_given("list[0].x")
    assert not origins.is_given("node.x")


def test_derived_values_name_their_source() -> None:
    origins = Origins({})
    assert origins.derive("d", "x.y", "x, y") == "x.y"
    assert origins.values[0].source == "x, y"


def test_values_become_plain() -> None:
    values = (
        Profile.OPENSHIFT,
        ("a", ipaddress.ip_address("10.0.0.1")),
        ipaddress.ip_network("10.0.0.0/8"),
        True,
        None,
    )
    assert [Value("p", one, Origin.GIVEN).plain for one in values] == [
        *("openshift", ["a", "10.0.0.1"], "10.0.0.0/8", True, None)
    ]


def test_values_become_a_tree() -> None:
    values = [Value(path, number, Origin.GIVEN) for number, path in enumerate(("a", "b.c", "b.d.e"))]
    assert nested(tuple(values)) == {"a": 0, "b": {"c": 1, "d": {"e": 2}}}
