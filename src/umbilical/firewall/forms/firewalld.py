"""Rich rules for hosts under firewalld: into the running configuration only, and gone by themselves after a day."""

import shlex
from typing import Final

from umbilical.firewall.forms.cloud_cli import HEAD
from umbilical.firewall.platforms.platform import Rule

# The tunnel's certificates live as long; firewalld takes no timeout for permanent rules, which these must not be.
TIMEOUT: Final = "24h"


def script(rules: tuple[Rule, ...], comments: tuple[str, ...], *, closing: bool = False) -> str:
    told = "".join(f"# {comment}\n" for comment in comments)
    return HEAD + told + "".join(f"{line}\n" for line in _lines(rules, closing=closing))


def rich_rule(network: str, port: int) -> str:
    family = "ipv6" if ":" in network else "ipv4"
    return f'rule family="{family}" source address="{network}" port port="{port}" protocol="tcp" accept'


def _lines(rules: tuple[Rule, ...], *, closing: bool) -> list[str]:
    wanted = [rich_rule(place.value, rule.port) for rule in rules for place in rule.sources]
    if closing:
        return [shlex.join(("firewall-cmd", f"--remove-rich-rule={text}")) for text in wanted]
    return [shlex.join(("firewall-cmd", f"--add-rich-rule={text}", f"--timeout={TIMEOUT}")) for text in wanted]
