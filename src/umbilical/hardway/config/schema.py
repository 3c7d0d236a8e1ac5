"""The JSON Schema of a cluster's file, for editors and pipelines: made from the table that the reader uses."""

from typing import Any, Final

from umbilical.hardway.config.cluster import MachinesKind, Profile
from umbilical.hardway.config.keys import KEYS, Key
from umbilical.hardway.config.reading import LIST, KeyTree, key_tree

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "A cluster that is built the hard way (umbilical stage)",
        **_object(key_tree()),
        "type": "object",
        "allOf": [_refusal(key) for key in KEYS if key.only is not None],
    }


def _object(tree: KeyTree) -> dict[str, Any]:
    """A section without any key in it reads as null, and means nothing."""
    needed = [name for name, below in tree.items() if isinstance(below, Key) and below.is_needed]
    described: dict[str, Any] = {
        "type": ["object", "null"],
        "properties": {name.removesuffix(LIST): _member(name, below) for name, below in tree.items()},
        "additionalProperties": False,
    }
    return {**described, "required": needed} if needed else described


def _member(name: str, below: Key | KeyTree) -> dict[str, Any]:
    if isinstance(below, Key):
        value = {"description": below.about, **below.kind.schema}
        return (
            value if below.is_needed else {"description": below.about, "anyOf": [below.kind.schema, {"type": "null"}]}
        )
    if name.endswith(LIST):
        return {"type": ["array", "null"], "items": _object(below)}
    return _object(below)


def _refusal(key: Key) -> dict[str, Any]:
    """Say that a key is not for this profile, or not for these machines."""
    absent: dict[str, Any] = {"type": "null"}
    for part in reversed(key.path.split(".")):
        absent = {"properties": {part: absent}}
    return {"if": _is_elsewhere(key.only), "then": absent}


def _is_elsewhere(only: Profile | MachinesKind | None) -> dict[str, Any]:
    if isinstance(only, Profile):
        return {"not": {"properties": {"profile": {"const": only.value}}}}
    # Where machines are not named, they follow from the profile: the one key of this kind is libvirt's.
    assert only is MachinesKind.LIBVIRT
    named = {"properties": {"machines": {"const": MachinesKind.LAB.value}}, "required": ["machines"]}
    implied = {
        "properties": {"profile": {"const": Profile.KUBERNETES.value}, "machines": {"type": "null"}},
    }
    return {"anyOf": [named, implied]}
