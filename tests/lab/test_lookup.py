"""Wrong names get the nearest; right ones are loaded from their module."""

import pytest

from umbilical.lab.lookup import hint, load


def test_a_wrong_name_gets_the_nearest_one() -> None:
    assert hint("agent-kil", ["agent-kill", "server-kill"]) == "did you mean agent-kill?"


def test_a_name_that_is_near_nothing_gets_the_list() -> None:
    assert hint("?", ["agent-kill", "server-kill"]) == "there are: agent-kill, server-kill"


def test_a_thing_is_found_in_the_tuple_of_its_module() -> None:
    found = load("umbilical.lab.scenarios", {"ipv6": "webhook_through_tunnel"}, "SCENARIOS", "ipv6")
    assert found.name == "ipv6"


def test_a_table_that_names_the_wrong_module_is_our_own_fault() -> None:
    with pytest.raises(StopIteration):
        load("umbilical.lab.scenarios", {"ipv6": "aggregated_api"}, "SCENARIOS", "ipv6")
