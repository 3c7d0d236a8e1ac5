"""Rich rules, as shell words."""

import shlex

from umbilical.assets.firewall.firewalld import rich_rule, script
from umbilical.assets.platforms.platform import BOOTSTRAP_HOST, Place, PlaceKind, Rule

NETWORKS = ("10.0.0.0/16", "fd00::/64")
RULES = (Rule("konnectivity", 8091, tuple(Place(PlaceKind.NETWORK, text) for text in NETWORKS), BOOTSTRAP_HOST),)


def _commands(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("firewall-cmd")]
    return [shlex.split(line) for line in lines]


def test_a_rule_names_family_source_and_port() -> None:
    assert rich_rule("fd00::/64", 8091) == (
        'rule family="ipv6" source address="fd00::/64" port port="8091" protocol="tcp" accept'
    )


def test_rules_are_never_permanent_and_end_by_themselves() -> None:
    made = _commands(script(RULES, ("why",)))
    assert [words[2] for words in made] == ["--timeout=24h", "--timeout=24h"]
    assert not any("--permanent" in words for words in made)


def test_closing_removes_exactly_what_opening_adds() -> None:
    added = [words[1].removeprefix("--add-rich-rule=") for words in _commands(script(RULES, ()))]
    removed = [words[1].removeprefix("--remove-rich-rule=") for words in _commands(script(RULES, (), closing=True))]
    assert added == removed == [rich_rule(network, 8091) for network in NETWORKS]
