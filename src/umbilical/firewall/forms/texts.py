"""Rules as text for a program: shell commands of a cloud, firewalld rich rules, an nftables ruleset, Terraform. Every
word is quoted, so that nothing is evaluated; variables that only the user knows must be set beforehand.
"""

import ipaddress
import shlex
from collections.abc import Mapping
from typing import Any, Final

from umbilical.firewall.platforms.platform import (
    FirewallRule,
    Need,
    Reference,
    RuleCommands,
    ShellVariable,
    TerraformBlock,
    ToolCommand,
    Word,
)

HEAD: Final = "#!/usr/bin/env bash\nset -euo pipefail\n"


def script(commands: RuleCommands, comments: tuple[str, ...], *, closing: bool = False) -> str:
    """Write the commands that open the port, or those that close it."""
    steps = commands.close if closing else commands.open
    lines = [*(_need_line(need) for need in commands.needs), *map(command_line, (*commands.prepare, *steps))]
    return HEAD + "".join(f"# {comment}\n" for comment in comments) + "\n".join(lines) + "\n"


def command_line(command: ToolCommand) -> str:
    programs = (command.words, *command.pipe)
    text = " | ".join(" ".join(_word(word) for word in words) for words in programs)
    return f"{command.into}=$({text})" if command.into else text


def _need_line(need: Need) -> str:
    message = shlex.quote(f"{need.variable} is not set: {need.meaning}")
    return f'[ -n "${{{need.variable}:-}}" ] || {{ echo {message} >&2; exit 2; }}'


def _word(word: Word) -> str:
    if isinstance(word, ShellVariable):
        return f'{shlex.quote(word.prefix) if word.prefix else ""}"${word.name}"'
    return shlex.quote(word)


# The lifetime of the tunnel's certificates. firewalld accepts a timeout only for rules that are not permanent.
TIMEOUT: Final = "24h"


def firewalld_script(rules: tuple[FirewallRule, ...], comments: tuple[str, ...], *, closing: bool = False) -> str:
    head = "".join(f"# {comment}\n" for comment in comments)
    return HEAD + head + "".join(f"{line}\n" for line in _lines(rules, closing=closing))


def rich_rule(network: str, port: int) -> str:
    family = "ipv6" if ":" in network else "ipv4"
    return f'rule family="{family}" source address="{network}" port port="{port}" protocol="tcp" accept'


def _lines(rules: tuple[FirewallRule, ...], *, closing: bool) -> list[str]:
    wanted = [rich_rule(place.value, rule.port) for rule in rules for place in rule.sources]
    if closing:
        return [shlex.join(("firewall-cmd", f"--remove-rich-rule={text}")) for text in wanted]
    return [shlex.join(("firewall-cmd", f"--add-rich-rule={text}", f"--timeout={TIMEOUT}")) for text in wanted]


TABLE: Final = "inet umbilical_konnectivity"
# Before the usual tables (0). An accept does not end the evaluation: every base chain is evaluated.
PRIORITY: Final = -10


def ruleset(rules: tuple[FirewallRule, ...], comments: tuple[str, ...]) -> str:
    """Write the ruleset. It adds the table before deleting it, so that it loads for the first time and again."""
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


def _matches(rule: FirewallRule) -> list[str]:
    # nft rejects a set with overlapping intervals.
    narrow = ipaddress.collapse_addresses(ipaddress.IPv4Network(text) for text in _networks(rule, 4))
    wide = ipaddress.collapse_addresses(ipaddress.IPv6Network(text) for text in _networks(rule, 6))
    sets = (("ip", ", ".join(map(str, narrow))), ("ip6", ", ".join(map(str, wide))))
    return [f"tcp dport {rule.port} {family} saddr {{ {named} }}" for family, named in sets if named]


def _networks(rule: FirewallRule, version: int) -> list[str]:
    return [place.value for place in rule.sources if ipaddress.ip_network(place.value).version == version]


def _elsewhere(rules: tuple[FirewallRule, ...]) -> str:
    lines = [f"nft insert rule inet filter input {line} accept" for rule in rules for line in _matches(rule)]
    lines_of_comment = (
        "If another table drops unknown traffic, add the rule there too, with that table's names:",
        *lines,
    )
    return _comments(lines_of_comment)


def _comments(lines: tuple[str, ...]) -> str:
    return "".join(f"# {line}\n" for line in lines)


_INDENT: Final = "  "
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def terraform_text(blocks: tuple[TerraformBlock, ...]) -> str:
    return "\n".join(_block(block, "") for block in blocks)


def quoted(text: str) -> str:
    """Write a string literal; escapes `${` and `%{`, which Terraform would evaluate."""
    escaped = "".join(_ESCAPES.get(char, char) for char in text)
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


def _block(block: TerraformBlock, indent: str) -> str:
    head = " ".join((block.kind, *(quoted(label) for label in block.labels)))
    inner = indent + _INDENT
    attributes = block.attributes or {}
    width = max((len(name) for name in attributes), default=0)
    lines = [f"{inner}{name:<{width}} = {_value(value, inner)}\n" for name, value in attributes.items()]
    nested = "".join(f"\n{_block(child, inner)}" for child in block.blocks)
    return f"{indent}{head} {{\n{''.join(lines)}{nested}{indent}}}\n"


def _value(value: Any, indent: str) -> str:
    if isinstance(value, Reference):
        return value.expression
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item, indent) for item in value)}]"
    if isinstance(value, Mapping):
        inner = indent + _INDENT
        members = "".join(f"{inner}{name} = {_value(member, inner)}\n" for name, member in value.items())
        return f"{{\n{members}{indent}}}"
    return str(value)
