"""A plan survives its journey to the program that carries it out."""

import json

import pytest

from umbilical.lab.pods.container_plan import ContainerPlan, Part, Piece, from_json


def test_a_plan_is_the_same_after_the_journey() -> None:
    plan = ContainerPlan(
        root="/run/root",
        owner="pod-on-node-1",
        pieces=(Piece(Part.BIND, "/a", "/b", is_read_only=True), Piece(Part.FILE, "/c", "text\n", 0o644)),
        command=("program", "--flag=ä"),
        environment={"A": "1"},
        network="/run/netns/x",
        hostname="pod",
        root_is_read_only=True,
        user=65532,
        group=0,
        groups=(5, 6),
        capabilities=("NET_RAW",),
        may_gain_privileges=False,
    )
    assert from_json(plan.to_json()) == plan


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", json.dumps({"pieces": [{"part": "hole"}]}).encode()])
def test_a_broken_plan_is_refused_by_an_error_that_the_program_reports(content: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        from_json(content)
