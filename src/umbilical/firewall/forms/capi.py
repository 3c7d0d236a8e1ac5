"""Adds a platform's rule to the manifest of its Cluster API provider, and removes it. List items are inserted and
removed by their position in the text; every other byte stays."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.firewall.platforms.platform import Each, ManifestEdit, Named, PathStep
from umbilical.manifests.tree import yaml_bytes

Path = tuple[str | int, ...]


def append_items(text: str, path: Path, items: Sequence[Mapping[str, Any]]) -> str:
    """Append items to the list at `path`; a missing list is created."""
    document = yaml.safe_load(text)
    *parents, key = path
    holder = value_at(document, tuple(parents))
    holder[key] = [*(holder.get(key) or []), *items]
    return _checked(_appended(text, path, items), document)


def remove_items(text: str, path: Path, positions: Sequence[int]) -> str:
    """Remove items from the list at `path`, and the list if it is then empty, as the installer omits empty lists."""
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
    """Return the start of the line after a node. Uses its last leaf: a block's end mark is after following comments."""
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


# Azure rejects two rules of one direction with the same priority; all other fields decide whether a rule is ours.
_NUMBER: Final = "priority"
_NUMBER_STEP: Final = 10


def snippet(edit: ManifestEdit) -> str:
    """Write only the items, with their place in the manifest as a comment."""
    steps = ".".join(_step_text(step) for step in edit.path)
    return f"# cluster-api/{edit.file}, {edit.kind}: {steps}\n{yaml_bytes(list(edit.items)).decode()}"


def opened(text: str, edit: ManifestEdit) -> str:
    """Add the items to every list that does not allow the port. Raises RenderError: not the expected manifest."""
    for path in _lists(text, edit):
        there = _items(text, path)
        if not any(edit.opens(item) for item in there):
            text = append_items(text, path, [_numbered(item, there) for item in edit.items])
    return text


def closed(text: str, edit: ManifestEdit) -> str:
    """Remove only our own items from every list. Raises RenderError: not the expected manifest."""
    wanted = [_unnumbered(item) for item in edit.items]
    for path in _lists(text, edit):
        ours = [position for position, item in enumerate(_items(text, path)) if _unnumbered(item) in wanted]
        if ours:
            text = remove_items(text, path, ours)
    return text


def _items(text: str, path: Path) -> list[Mapping[str, Any]]:
    holder = value_at(yaml.safe_load(text), path[:-1])
    found = holder.get(path[-1]) or []
    return [item for item in found if isinstance(item, Mapping)]


def _lists(text: str, edit: ManifestEdit) -> list[Path]:
    document = _document(text, edit)
    found = list(_resolve(document, edit.path[:-1]))
    if not found:
        raise _strange(edit, f"it has no {'.'.join(_step_text(step) for step in edit.path[:-1])}")
    key = edit.path[-1]
    assert isinstance(key, str)
    for path in found:
        there = value_at(document, path).get(key)
        if there is not None and not (isinstance(there, list) and all(isinstance(item, dict) for item in there)):
            raise _strange(edit, f"{key} is not a list of rules")
    return [(*path, key) for path in found]


def _document(text: str, edit: ManifestEdit) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "syntax error"
        raise _strange(edit, f"it is not a YAML document: {problem}") from None
    if not isinstance(document, dict) or document.get("kind") != edit.kind:
        raise _strange(edit, f"its kind is not {edit.kind}")
    return document


def _resolve(value: Any, path: Sequence[PathStep], walked: Path = ()) -> Iterator[Path]:
    """Yield the paths of all mappings that match the steps."""
    if not path:
        if isinstance(value, dict):
            yield walked
        return
    step, rest = path[0], path[1:]
    for key, child in _children(value, step):
        yield from _resolve(child, rest, (*walked, key))


def _children(value: Any, step: PathStep) -> list[tuple[str | int, Any]]:
    if isinstance(step, str):
        return [(step, value[step])] if isinstance(value, dict) and step in value else []
    elements = list(enumerate(value)) if isinstance(value, list) else []
    if isinstance(step, Named):
        return [(place, item) for place, item in elements if isinstance(item, dict) and item.get("name") == step.name]
    return list(elements)


def _numbered(item: Mapping[str, Any], there: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if _NUMBER not in item:
        return item
    taken = {other.get(_NUMBER) for other in there}
    number = item[_NUMBER]
    while number in taken:
        number += _NUMBER_STEP
    return {**item, _NUMBER: number}


def _unnumbered(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != _NUMBER}


def _step_text(step: PathStep) -> str:
    if isinstance(step, Named):
        return f"[name={step.name}]"
    return "[*]" if isinstance(step, Each) else step


def _strange(edit: ManifestEdit, why: str) -> RenderError:
    remedy = "use the file as `openshift-install create manifests` wrote it, or open the port with -o cli"
    return RenderError("UMB164", f"cluster-api/{edit.file} is not the expected manifest", why, remedy)
