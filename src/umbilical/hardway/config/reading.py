"""A cluster from its YAML file: unknown keys refused with the nearest name, every problem told at once."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.hardway.config.cluster import Cluster, MachinesKind, Profile
from umbilical.hardway.config.keys import KEYS, Key
from umbilical.hardway.config.origins import Origins, Value
from umbilical.hardway.config.resolving import Resolver
from umbilical.manifests.sections import DocumentError, Section, read_document

LIST: Final = "[]"

KeyTree = dict[str, "Key | KeyTree"]
"""Keys by their names; lists of sections carry LIST behind theirs."""


@dataclass(frozen=True)
class Resolved:
    cluster: Cluster
    values: tuple[Value, ...]
    """Everything that is in it, with its origin."""


def read_cluster(content: bytes) -> Resolved:
    """Read a cluster's file.

    Raises:
        RenderError: UMB700; it is no such file, or some of it cannot be used: all of that is told.
    """
    try:
        document = read_document(content)
    except DocumentError as error:
        raise _refused([str(error)]) from None
    reading = _Reading()
    reading.take(Section(document, "", reading.problems), key_tree())
    resolver = Resolver(Origins(reading.given))
    problems = [*reading.problems, *_misplaced(reading.given, resolver)]
    # What contradicts itself is judged only where every value could be read: it would repeat the same faults.
    cluster = None if reading.has_unreadable else resolver.cluster()
    problems += resolver.problems
    if problems or cluster is None:
        raise _refused(problems)
    return Resolved(cluster, resolver.origins.values)


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


class _Reading:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.given: dict[str, Any] = {}
        self.has_unreadable = False

    def take(self, section: Section, tree: KeyTree) -> None:
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

    def _take_value(self, section: Section, name: str, key: Key) -> None:
        path = f"{section.path}.{name}" if section.path else name
        known = len(self.problems)
        if section.has(name):
            value = key.kind.read(section, name)
            if len(self.problems) == known:
                self.given[path] = value
        else:
            section.take(name)
            if key.is_needed:
                self.problems.append(f"{path} is needed")
        self.has_unreadable |= len(self.problems) > known


def _misplaced(given: dict[str, Any], resolver: Resolver) -> list[str]:
    """Tell of keys that mean nothing here: that they are ignored would be found out late."""
    here = {resolver.profile, resolver.machines}
    return [
        f"{key.path} is for {_word(key.only)} {key.only.value} only"
        for key in KEYS
        if key.only is not None and key.only not in here and key.path in given
    ]


def _word(only: Profile | MachinesKind) -> str:
    return "the profile" if isinstance(only, Profile) else "machines"


def _refused(problems: list[str]) -> RenderError:
    what = "the cluster's file cannot be used"
    if len(problems) > 1:
        what = f"{what}, for {len(problems)} reasons"
    remedy = "compare with: umbilical stage init --dir SOMEWHERE; umbilical config schema"
    return RenderError("UMB700", what, "; ".join(problems), remedy)
