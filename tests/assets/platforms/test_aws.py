"""AWS: the description decides whether an old installer takes the rule away."""

from umbilical.assets.platforms.aws import commands, edit, group_names, rules
from umbilical.assets.platforms.platform import Command
from umbilical.assets.platforms.request import Release, Request


def test_old_installers_sweep_the_rule_by_its_description() -> None:
    for release in (None, Release(4, 16), Release(4, 22)):
        item = edit(Request("ci", release=release)).items[0]
        assert item["description"] == "Bootstrap SSH Access"


def test_installers_that_know_the_rule_get_its_own_description() -> None:
    assert edit(Request("ci", release=Release(4, 23))).items[0]["description"] == "Bootstrap Konnectivity"
    assert rules(Request("ci", release=Release(5, 1)))[0].description == "Bootstrap Konnectivity"


def test_the_manifest_names_roles_and_one_port() -> None:
    item = edit(Request("ci", 9191)).items[0]
    assert item["sourceSecurityGroupRoles"] == ["controlplane", "node"]
    assert (item["fromPort"], item["toPort"], item["protocol"]) == (9191, 9191, "tcp")


def test_a_rule_for_the_port_is_recognised_whatever_it_is_called() -> None:
    opens = edit(Request("ci")).opens
    assert opens({"protocol": "tcp", "fromPort": 8091, "toPort": 8091, "description": "mine"})
    assert not opens({"protocol": "udp", "fromPort": 8091, "toPort": 8091})
    assert not opens({"protocol": "tcp", "fromPort": 22, "toPort": 22, "description": "Bootstrap SSH Access"})


def test_groups_of_terraform_installers_have_other_names() -> None:
    assert group_names(Request("ci", release=Release(4, 15))) == ("ci-master-sg", "ci-worker-sg")
    assert group_names(Request("ci", release=Release(4, 16))) == ("ci-controlplane", "ci-node")


def test_closing_names_the_same_permission_as_opening() -> None:
    made = commands(Request("ci"))
    permissions = [_permission(command) for command in made.open]
    assert permissions == [_permission(command) for command in made.close]
    assert len(set(permissions)) == 2


def _permission(command: Command) -> tuple[object, ...]:
    return command.words[3 : command.words.index("--source-group") + 2]
