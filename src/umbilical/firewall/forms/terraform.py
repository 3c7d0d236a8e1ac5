"""HashiCorp's configuration language: blocks in, text out. What comes from outside is quoted and never evaluated."""

from collections.abc import Mapping
from typing import Any, Final

from umbilical.firewall.platforms.platform import Block, Reference

_INDENT: Final = "  "
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def terraform_text(blocks: tuple[Block, ...]) -> str:
    return "\n".join(_block(block, "") for block in blocks)


def quoted(text: str) -> str:
    """Write a string literal: `${` and `%{` would be evaluated otherwise."""
    escaped = "".join(_ESCAPES.get(char, char) for char in text)
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


def _block(block: Block, indent: str) -> str:
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
