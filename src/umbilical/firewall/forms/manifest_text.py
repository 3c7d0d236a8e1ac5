"""Edits of a YAML text that leave every other byte alone: items of lists, put in and taken out by their positions.

Positions come from PyYAML's own parser. What it makes of the result is compared with what was meant; where a text is
written in a way that lines cannot be added to (flow style, aliases), the whole document is written anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from umbilical.manifests.tree import yaml_bytes

Path = tuple[str | int, ...]


def append_items(text: str, path: Path, items: Sequence[Mapping[str, Any]]) -> str:
    """Put items at the end of the list at `path`; a list that is missing in its mapping is made there."""
    document = yaml.safe_load(text)
    *parents, key = path
    holder = value_at(document, tuple(parents))
    holder[key] = [*(holder.get(key) or []), *items]
    return _checked(_appended(text, path, items), document)


def remove_items(text: str, path: Path, positions: Sequence[int]) -> str:
    """Take items out of the list at `path`; a list that is empty then goes too, as the installer leaves those out."""
    document = yaml.safe_load(text)
    *parents, key = path
    holder = value_at(document, tuple(parents))
    kept = [item for position, item in enumerate(holder[key]) if position not in positions]
    if kept:
        holder[key] = kept
    else:
        del holder[key]
    return _checked(_removed(text, path, positions, is_emptied=not kept), document)


def value_at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _checked(text: str | None, meant: Any) -> str:
    if text is not None and _parsed(text) == meant:
        return text
    return yaml_bytes(meant).decode()


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _appended(text: str, path: Path, items: Sequence[Mapping[str, Any]]) -> str | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = _node_at(root, path)
    lines = yaml_bytes(list(items)).decode()
    if isinstance(found, yaml.SequenceNode) and not found.flow_style and found.value:
        return _inserted(text, _line_after(text, found), _indented(lines, found.start_mark.column))
    holder = _node_at(root, path[:-1])
    if found is None and isinstance(holder, yaml.MappingNode) and not holder.flow_style:
        column = holder.start_mark.column
        return _inserted(text, _line_after(text, holder), " " * column + f"{path[-1]}:\n" + _indented(lines, column))
    return None


def _removed(text: str, path: Path, positions: Sequence[int], *, is_emptied: bool) -> str | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = _node_at(root, path)
    if not isinstance(found, yaml.SequenceNode) or found.flow_style:
        return None
    for position in sorted(positions, reverse=True):
        item = found.value[position]
        text = text[: _line_start(text, item)] + text[_line_after(text, item) :]
    if not is_emptied:
        return text
    key = _key_node(root, path)
    return None if key is None else text[: _line_start(text, key)] + text[_line_after(text, key) :]


def _node_at(node: yaml.Node | None, path: Path) -> yaml.Node | None:
    for step in path:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            return None
    return node


def _key_node(root: yaml.Node | None, path: Path) -> yaml.Node | None:
    holder = _node_at(root, path[:-1])
    if not isinstance(holder, yaml.MappingNode):
        return None
    return next((key for key, _ in holder.value if key.value == path[-1]), None)


def _line_start(text: str, node: yaml.Node) -> int:
    return text.rfind("\n", 0, node.start_mark.index) + 1


def _line_after(text: str, node: yaml.Node) -> int:
    """Where the line after a node begins. A block's own end mark lies behind comments that follow it: its last leaf's
    does not."""
    end: int = _last_leaf(node).end_mark.index
    if end and text[end - 1] == "\n":
        return end
    newline = text.find("\n", end)
    return len(text) if newline < 0 else newline + 1


def _last_leaf(node: yaml.Node) -> yaml.Node:
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _inserted(text: str, position: int, lines: str) -> str:
    before = text[:position]
    glue = "" if not before or before.endswith("\n") else "\n"
    return before + glue + lines + text[position:]


def _indented(text: str, width: int) -> str:
    return "".join(f"{' ' * width}{line}\n" for line in text.splitlines())
