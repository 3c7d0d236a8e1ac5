"""Reads cluster.yaml and makes its JSON Schema, both from the table of keys.

All problems are reported together; for an unknown key the most similar known key is named.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind, Origins, ResolvedValue
from umbilical.hardway.config.keys import KEYS, Key
from umbilical.hardway.config.resolving import ConfigResolver
from umbilical.manifests.sections import DocumentError, YamlSection, read_document

LIST: Final = "[]"

KeyTree = dict[str, "Key | KeyTree"]
"""Keys by name; the name of a list of sections ends with LIST."""


@dataclass(frozen=True)
class ResolvedConfig:
    cluster: Cluster
    values: tuple[ResolvedValue, ...]
    """Every value of the cluster, with its origin."""


def read_cluster(content: bytes) -> ResolvedConfig:
    """Read cluster.yaml. Raises RenderError: UMB700, with all problems."""
    try:
        document = read_document(content)
    except DocumentError as error:
        raise _refused([str(error)]) from None
    reading = _KeyReader()
    reading.take(YamlSection(document, "", reading.problems), key_tree())
    resolver = ConfigResolver(Origins(reading.given))
    problems = [*reading.problems, *_misplaced(reading.given, resolver)]
    # Contradictions are searched only if every value could be read; else the same problems would be reported twice.
    cluster = None if reading.has_unreadable else resolver.cluster()
    problems += resolver.problems
    if problems or cluster is None:
        raise _refused(problems)
    return ResolvedConfig(cluster, resolver.origins.values)


@cache
def key_tree() -> KeyTree:
    root: KeyTree = {}
    for key in KEYS:
        place = root
        *folders, name = key.path.split(".")
        for folder in folders:
            below = place.setdefault(folder, {})
            assert isinstance(below, dict)
            place = below
        place[name] = key
    return root


class _KeyReader:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.given: dict[str, Any] = {}
        self.has_unreadable = False

    def take(self, section: YamlSection, tree: KeyTree) -> None:
        for name, below in tree.items():
            if isinstance(below, Key):
                self._take_value(section, name, below)
            elif name.endswith(LIST):
                for entry in section.sections(name.removesuffix(LIST)):
                    self.given[entry.path] = True
                    self.take(entry, below)
            else:
                self.take(section.section(name), below)
        section.finish()

    def _take_value(self, section: YamlSection, name: str, key: Key) -> None:
        path = f"{section.path}.{name}" if section.path else name
        known = len(self.problems)
        if section.has(name):
            value = key.value_type.read(section, name)
            if len(self.problems) == known:
                self.given[path] = value
        else:
            section.take(name)
            if key.is_needed:
                self.problems.append(f"{path} is needed")
        self.has_unreadable |= len(self.problems) > known


def _misplaced(given: dict[str, Any], resolver: ConfigResolver) -> list[str]:
    """Report keys of another profile or other machines, which would have no effect."""
    here = {resolver.profile, resolver.machines}
    return [
        f"{key.path} is only valid with {_word(key.only)}: {key.only.value}"
        for key in KEYS
        if key.only is not None and key.only not in here and key.path in given
    ]


def _word(only: ClusterProfile | MachinesKind) -> str:
    return "profile" if isinstance(only, ClusterProfile) else "machines"


def _refused(problems: list[str]) -> RenderError:
    what = "cluster.yaml is invalid"
    if len(problems) > 1:
        what = f"{what}: {len(problems)} problems"
    remedy = "compare it with a new file: umbilical stage init --dir SOMEWHERE, or with: umbilical config schema"
    return RenderError("UMB700", what, "; ".join(problems), remedy)


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "A cluster that is built the hard way (umbilical stage)",
        **_object(key_tree()),
        "type": "object",
        "allOf": [_refusal(key.path, key.only) for key in KEYS if key.only is not None],
    }


def _object(tree: KeyTree) -> dict[str, Any]:
    """Null is allowed: YAML reads a section without keys as null."""
    needed = [name for name, below in tree.items() if isinstance(below, Key) and below.is_needed]
    described: dict[str, Any] = {
        "type": ["object", "null"],
        "properties": {name.removesuffix(LIST): _member(name, below) for name, below in tree.items()},
        "additionalProperties": False,
    }
    return {**described, "required": needed} if needed else described


def _member(name: str, below: Key | KeyTree) -> dict[str, Any]:
    if isinstance(below, Key):
        value = below.value_type.schema
        return {"description": below.about, **(value if below.is_needed else {"anyOf": [value, {"type": "null"}]})}
    if name.endswith(LIST):
        return {"type": ["array", "null"], "items": _object(below)}
    return _object(below)


def _refusal(path: str, only: ClusterProfile | MachinesKind) -> dict[str, Any]:
    """Forbid a key for the other profile or the other machines."""
    absent: dict[str, Any] = {"type": "null"}
    for part in reversed(path.split(".")):
        absent = {"properties": {part: absent}}
    return {"if": _is_elsewhere(only), "then": absent}


_ELSEWHERE: Final = {
    MachinesKind.LIBVIRT: (MachinesKind.LAB, ClusterProfile.KUBERNETES),
    MachinesKind.LAB: (MachinesKind.LIBVIRT, ClusterProfile.OPENSHIFT),
}
"""Kind of machines -> the other kind, and the profile that has it as default."""


def _is_elsewhere(only: ClusterProfile | MachinesKind) -> dict[str, Any]:
    if isinstance(only, ClusterProfile):
        return {"not": {"properties": {"profile": {"const": only.value}}}}
    other, its_profile = _ELSEWHERE[only]
    named = {"properties": {"machines": {"const": other.value}}, "required": ["machines"]}
    # Without `machines`, the profile decides.
    implied = {"properties": {"profile": {"const": its_profile.value}, "machines": {"type": "null"}}}
    return {"anyOf": [named, implied]}
