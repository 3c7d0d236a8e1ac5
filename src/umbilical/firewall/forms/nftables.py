"""A ruleset that `nft -f` loads as it is: one table of ours, which lets the nodes reach the port and nobody else.

Another table's drop is not undone by an accept here: that is how nftables works. The comment says what to add there.
"""

import ipaddress
from typing import Final

from umbilical.firewall.platforms.platform import Rule

TABLE: Final = "inet umbilical_konnectivity"
# Before the usual tables (0). Their accepts would not end the walk either: every base chain is asked.
PRIORITY: Final = -10


def ruleset(rules: tuple[Rule, ...], comments: tuple[str, ...]) -> str:
    """Adding the table before deleting it makes the file loadable whether it was loaded before or not."""
    accepts = [f"        {line} accept\n" for rule in rules for line in _matches(rule)]
    refuses = [f"        tcp dport {port} reject with tcp reset\n" for port in sorted({rule.port for rule in rules})]
    return (
        f"#!/usr/sbin/nft -f\n{_comments(comments)}{_elsewhere(rules)}"
        f"table {TABLE}\ndelete table {TABLE}\n"
        f"table {TABLE} {{\n    chain agents {{\n"
        f"        type filter hook input priority {PRIORITY}; policy accept;\n"
        '        iifname "lo" accept\n'
        f"{''.join(accepts)}{''.join(refuses)}    }}\n}}\n"
    )


def teardown(comments: tuple[str, ...]) -> str:
    return f"#!/usr/sbin/nft -f\n{_comments(comments)}table {TABLE}\ndelete table {TABLE}\n"


def _matches(rule: Rule) -> list[str]:
    # nft refuses a set whose intervals overlap.
    narrow = ipaddress.collapse_addresses(ipaddress.IPv4Network(text) for text in _networks(rule, 4))
    wide = ipaddress.collapse_addresses(ipaddress.IPv6Network(text) for text in _networks(rule, 6))
    sets = (("ip", ", ".join(map(str, narrow))), ("ip6", ", ".join(map(str, wide))))
    return [f"tcp dport {rule.port} {family} saddr {{ {named} }}" for family, named in sets if named]


def _networks(rule: Rule, version: int) -> list[str]:
    return [place.value for place in rule.sources if ipaddress.ip_network(place.value).version == version]


def _elsewhere(rules: tuple[Rule, ...]) -> str:
    lines = [f"nft insert rule inet filter input {line} accept" for rule in rules for line in _matches(rule)]
    told = (
        "Where another table drops what it does not know, add the rule there too, under that table's names:",
        *lines,
    )
    return _comments(told)


def _comments(lines: tuple[str, ...]) -> str:
    return "".join(f"# {line}\n" for line in lines)
