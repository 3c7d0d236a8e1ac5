"""Azure by hand: the resource group is the user's to give."""

from umbilical.assets.platforms.azure_upi import blocks, commands, leftovers
from umbilical.assets.platforms.platform import Reference, Variable
from umbilical.assets.platforms.request import Request


def test_the_resource_group_is_asked_for_and_used() -> None:
    for made in (commands(Request("ci")), leftovers(Request("ci"))):
        assert [need.variable for need in made.needs] == ["resource_group"]
        assert Variable("resource_group") in made.close[0].words


def test_terraform_takes_it_as_a_variable() -> None:
    declared, rule = blocks(Request("ci"))
    assert declared.kind == "variable"
    assert rule.attributes is not None
    assert rule.attributes["resource_group_name"] == Reference("var.resource_group")
