"""Whatever stands in an applied object, the rules about objects say something and never break."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import copied

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint import (
    crd_rules,
    handoff_rules,
    machine_config_rules,
    manifest_rules,
    object_rules,
)

RULES: Final = tuple(
    rule
    for module in (crd_rules, handoff_rules, machine_config_rules, manifest_rules, object_rules)
    for rule in module.RULES
)
ODD: Final[tuple[Any, ...]] = (None, [], {}, "", "x", 1, True, [None], [[]], {"a": None}, -1.5)
FOLDERS: Final = ("manifests/", "machine-config/manifests/", "late-static-pods/", "static-pods/")


@cache
def _places() -> list[tuple[str, int, tuple[Any, ...]]]:
    """Every value of every object: its file, its document, and the way to it."""
    found = []
    for path, asset in sorted(everything(Profile.OPENSHIFT).assets.items()):
        if path.startswith(FOLDERS) and path.endswith((".yaml", ".yml")):
            for number, document in enumerate(yaml.safe_load_all(asset.content)):
                found += [(path, number, way) for way in _ways(document)]
    return found


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from _ways(one, (*way, key))


def _put(document: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    changed = copy.deepcopy(document)
    inner = changed
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return changed


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(ODD))
def test_rules_judge_any_value_without_breaking(data: st.DataObject, odd: Any) -> None:
    path, number, way = data.draw(st.sampled_from(_places()))
    seen = copied(everything(Profile.OPENSHIFT))
    documents = list(yaml.safe_load_all(seen.assets[path].content))
    documents[number] = _put(documents[number], way, odd)
    seen.write(path, yaml.safe_dump_all(documents).encode())
    facts = seen.facts()
    for rule in RULES:
        assert rule.check.judge(facts).outcome is not None
