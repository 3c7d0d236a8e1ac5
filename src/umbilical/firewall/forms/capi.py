"""A platform's rule as an edit of the manifest that its Cluster API provider reads: done once, and undone exactly."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.firewall.forms.manifest_text import Path, append_items, remove_items, value_at
from umbilical.firewall.platforms.platform import Each, ManifestEdit, Named, Step
from umbilical.manifests.tree import yaml_bytes

# Azure refuses two rules of one direction with the same number; any other field decides whether a rule is ours.
_NUMBER: Final = "priority"
_NUMBER_STEP: Final = 10


def snippet(edit: ManifestEdit) -> str:
    """Write the items alone, with the place that they belong to."""
    steps = ".".join(_step_text(step) for step in edit.path)
    return f"# cluster-api/{edit.file}, {edit.kind}: {steps}\n{yaml_bytes(list(edit.items)).decode()}"


def opened(text: str, edit: ManifestEdit) -> str:
    """Put the items into every list that lets the port in by none of its own.

    Raises:
        RenderError: the manifest is not the one that the edit is for.
    """
    for path in _lists(text, edit):
        there = _items(text, path)
        if not any(edit.opens(item) for item in there):
            text = append_items(text, path, [_numbered(item, there) for item in edit.items])
    return text


def closed(text: str, edit: ManifestEdit) -> str:
    """Take our own items out of every list; what others wrote for the same port stays.

    Raises:
        RenderError: the manifest is not the one that the edit is for.
    """
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
            raise _strange(edit, f"{key} is no list of rules")
    return [(*path, key) for path in found]


def _document(text: str, edit: ManifestEdit) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise _strange(edit, f"it is no YAML document: {problem}") from None
    if not isinstance(document, dict) or document.get("kind") != edit.kind:
        raise _strange(edit, f"it holds no {edit.kind}")
    return document


def _resolve(value: Any, path: Sequence[Step], walked: Path = ()) -> Iterator[Path]:
    """Yield the paths of all mappings that the steps lead to."""
    if not path:
        if isinstance(value, dict):
            yield walked
        return
    step, rest = path[0], path[1:]
    for key, child in _children(value, step):
        yield from _resolve(child, rest, (*walked, key))


def _children(value: Any, step: Step) -> list[tuple[str | int, Any]]:
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


def _step_text(step: Step) -> str:
    if isinstance(step, Named):
        return f"[name={step.name}]"
    return "[*]" if isinstance(step, Each) else step


def _strange(edit: ManifestEdit, why: str) -> RenderError:
    remedy = "use the file as `openshift-install create manifests` wrote it, or open the port by -o cli"
    return RenderError("UMB164", f"cluster-api/{edit.file} is not as expected", why, remedy)
