"""Facts that are worth a computation: which agents stand for nodes."""

import pytest

from umbilical.hosted.facts import ManagementFacts, ServerHealth


@pytest.mark.parametrize(
    ("agents", "number"),
    [
        ({}, 0),
        ({"default": 3}, 3),
        ({"destHost": 2, "defaultRoute": 5}, 5),
        ({"destHost": 2, "defaultRoute": 0}, 0),
        ({"cidr": 4, "destHost": 1}, 4),
    ],
)
def test_agents_of_nodes_are_those_by_default_route_or_all(agents: dict[str, int], number: int) -> None:
    assert ServerHealth("s", agents=agents).node_agents == number


def test_a_service_that_is_not_there_is_none() -> None:
    facts = ManagementFacts((), {"a": {"kind": "Service"}})
    assert facts.service("a") == {"kind": "Service"}
    assert facts.service("b") is None
