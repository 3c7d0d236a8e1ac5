"""A lint rule, and its input: the bytes of the rendered artifacts, never the code that rendered them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import Any, Final

import yaml

from umbilical.checks.check import MAX_FAULTS, Check, Doubt, fault_check
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import Cluster, ClusterNode, ClusterProfile
from umbilical.ignition.config import Config, read_config
from umbilical.manifests.tree import Asset
from umbilical.pki.certificate import Certificate, Moment, read_certificates
from umbilical.pki.pem import BundleError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Unreadable(Exception):
    """An artifact that a rule needs is missing or has another format than its name implies."""


@dataclass(eq=False)
class LintFacts:
    cluster: Cluster
    assets: Mapping[str, Asset]
    """Artifacts by path below artifacts/."""
    now: Moment
    has_tunnel: bool
    exposed: tuple[str, ...] | None = None
    """Secret files of the cluster's directory that git does not ignore; None if no directory was checked."""
    _documents: dict[str, list[dict[str, Any]]] = field(default_factory=dict, init=False)
    _configs: dict[str, Config] = field(default_factory=dict, init=False)

    def content(self, path: str) -> bytes:
        """Return an artifact's bytes. Raises Unreadable: it is missing."""
        if path not in self.assets:
            raise Unreadable(f"{path} is missing")
        return self.assets[path].content

    def text(self, path: str) -> str:
        return self.content(path).decode(errors="replace")

    def below(self, folder: str) -> Iterator[Asset]:
        """List the artifacts of a directory, sorted by path."""
        return (self.assets[path] for path in sorted(self.assets) if path.startswith(f"{folder}/"))

    def documents(self, path: str) -> list[dict[str, Any]]:
        """Read an artifact as YAML documents, which must all be mappings."""
        if path not in self._documents:
            try:
                found = list(yaml.load_all(self.content(path), _Loader))
            except (yaml.YAMLError, ValueError, RecursionError) as error:
                raise Unreadable(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
            if not all(isinstance(one, dict) for one in found):
                raise Unreadable(f"{path} has a document that is not an object")
            self._documents[path] = found
        return self._documents[path]

    def document(self, path: str) -> dict[str, Any]:
        found = self.documents(path)
        if len(found) != 1:
            raise Unreadable(f"{path} has {len(found)} documents, one is expected")
        return found[0]

    @cached_property
    def manifests(self) -> list[tuple[str, dict[str, Any]]]:
        """Every applied object with its path, in order of application."""
        return [(asset.path, one) for asset in self.below(layout.MANIFESTS) for one in self.documents(asset.path)]

    def ignition(self, node: ClusterNode) -> Config:
        path = layout.ignition(node)
        if path not in self._configs:
            try:
                self._configs[path] = read_config(self.content(path))
            except IgnitionError as error:
                raise Unreadable(f"{path}: {error.why}") from None
        return self._configs[path]

    def node_file(self, node: ClusterNode, path: str) -> bytes:
        """Return the content of a file that a node's Ignition config writes."""
        file = self.ignition(node).file(path)
        if file is None:
            raise Unreadable(f"{layout.ignition(node)} does not write {path}")
        try:
            return file.content()
        except IgnitionError as error:
            raise Unreadable(f"{layout.ignition(node)}: {path}: {error.why}") from None

    def certificate(self, row_id: str) -> Certificate:
        """Return the first certificate of a row of the certificate table."""
        return self.certificates(layout.certificate(row_id))[0]

    def certificates(self, path: str) -> list[Certificate]:
        try:
            return list(read_certificates(self.content(path)))
        except BundleError as error:
            raise Unreadable(f"{path}: {error}") from None


BOTH: Final = frozenset(ClusterProfile)
OPENSHIFT: Final = frozenset({ClusterProfile.OPENSHIFT})
KUBERNETES: Final = frozenset({ClusterProfile.KUBERNETES})

Search = Callable[[LintFacts], Iterable[str]]
Need = Callable[[LintFacts], str | None]
"""Returns why a rule does not apply, or None."""


class RuleSeverity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class LintRule:
    id: str
    severity: RuleSeverity
    profiles: frozenset[ClusterProfile]
    check: Check[LintFacts]


def rule(
    identifier: str,
    title: str,
    why: str,
    fix: str,
    search: Search,
    *needs: Need,
    profiles: frozenset[ClusterProfile] = BOTH,
    severity: RuleSeverity = RuleSeverity.ERROR,
) -> LintRule:
    """Make a rule that passes if `search` finds no fault. An unreadable artifact is a fault."""

    def profile(facts: LintFacts) -> str | None:
        found = facts.cluster.profile
        return None if found in profiles else f"it does not apply to profile {found.value}"

    def faults(facts: LintFacts) -> Iterable[str]:
        found = _found(search, facts)
        return found if severity is RuleSeverity.ERROR else map(Doubt, found)

    return LintRule(identifier, severity, profiles, fault_check(identifier, title, why, fix, faults, profile, *needs))


def tunnel(facts: LintFacts) -> str | None:
    return None if facts.has_tunnel else "there is no tunnel (konnectivity: off)"


def kube_proxy(facts: LintFacts) -> str | None:
    return None if facts.cluster.has_kube_proxy else "there is no kube-proxy (kubeProxy: off)"


def _found(search: Search, facts: LintFacts) -> list[str]:
    try:
        return list(islice(search(facts), MAX_FAULTS))
    except Unreadable as error:
        return [str(error)]
