"""AWS by hand: the groups' ids are the user's to give."""

from umbilical.assets.platforms.aws_upi import blocks, commands, rules
from umbilical.assets.platforms.request import Request


def test_the_script_asks_for_both_groups() -> None:
    assert [need.variable for need in commands(Request("ci")).needs] == ["control_plane", "node"]


def test_nothing_is_looked_up_by_names_that_templates_do_not_give() -> None:
    assert commands(Request("ci")).prepare == ()
    assert {block.kind for block in blocks(Request("ci"))} == {"variable", "resource"}


def test_the_rule_lies_between_the_stacks_groups() -> None:
    rule = rules(Request("ci"))[0]
    assert [place.value for place in rule.sources] == ["MasterSecurityGroupId", "WorkerSecurityGroupId"]
