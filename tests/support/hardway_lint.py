"""Rendered clusters as the lint sees them, and single changes to them: what a rule must notice.

Every module `tests/hardway/lint/test_<topic>_rules.py` has a table `SAMPLES: Final[dict[str, Sample]]` beside
its own tests: for each id of its rules at least one change after which that rule fires. A second sample of one rule
has more words in its key: `"PKI-02"`, `"PKI-02 without localhost"`. `test_catalogue.py` runs all samples, each
against its own rule, on trees in which everything is switched on (tunnel, kube-proxy, 3 masters, 2 workers), one for
every profile that the rule is for.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import yaml
from tests.support.hardway import NOW

from umbilical.checks.check import Outcome, Verdict
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.lint.facts import LintFacts
from umbilical.ignition.document import IgnitionDocument
from umbilical.manifests.tree import Asset, AssetTree

_RULES: Final = {rule.id: rule for rule in RULES}


@dataclass
class Subject:
    """A tree that is changed in place."""

    cluster: Cluster
    assets: dict[str, Asset]
    now: datetime = NOW
    has_tunnel: bool = True
    exposed: tuple[str, ...] = ()
    """For CFG-07: what was found in a git work tree."""

    def facts(self) -> LintFacts:
        return LintFacts(self.cluster, self.assets, self.now, self.has_tunnel, self.exposed)

    def write(self, path: str, content: bytes, mode: int | None = None) -> None:
        """Give a file other content; one that is new has mode 0600."""
        old = self.assets.get(path)
        self.assets[path] = Asset(path, content, mode if mode is not None else old.mode if old else 0o600)

    def remove(self, path: str) -> None:
        del self.assets[path]

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace every occurrence of `old`; there must be at least one."""
        text = self.assets[path].content.decode()
        assert old in text, f"{old!r} is not in {path}"
        self.write(path, text.replace(old, new).encode())

    def edit(self, path: str, change: Callable[[Any], object]) -> None:
        """Change the value of a YAML file in place; of several documents the list."""
        documents = list(yaml.safe_load_all(self.assets[path].content))
        change(documents[0] if len(documents) == 1 else documents)
        self.write(path, yaml.safe_dump_all(documents, sort_keys=False).encode())

    def edit_json(self, path: str, change: Callable[[Any], object]) -> None:
        """Change the value of a JSON file in place."""
        value = json.loads(self.assets[path].content)
        change(value)
        self.write(path, json.dumps(value).encode())

    def edit_ignition(self, node_id: str, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change what a node's Ignition writes to a path."""
        where = layout.ignition(self.cluster.node(node_id))
        document = IgnitionDocument(self.assets[where].content)
        file = document.config.file(path)
        assert file is not None, f"{where} does not write {path}"
        self.write(where, document.with_content(path, change(file.content())).content)


Sample = Callable[[Subject], object]


def subject(cluster: Cluster, *trees: AssetTree, has_tunnel: bool = True) -> Subject:
    """Put together what was rendered."""
    return Subject(cluster, {asset.path: asset for tree in trees for asset in tree}, has_tunnel=has_tunnel)


def copied(original: Subject) -> Subject:
    """A copy of a subject: assets are values, so a copy of the mapping is enough."""
    return replace(original, assets=dict(original.assets))


def replaced(path: str, old: str, new: str) -> Sample:
    return lambda subject: subject.replace(path, old, new)


def verdict(key: str, seen: Subject) -> Verdict:
    """The judgement of one rule; `key` begins with its id, as those of samples do."""
    return _RULES[key.partition(" ")[0]].check.judge(seen.facts())


def complaint(key: str, seen: Subject) -> str | None:
    """The evidence of a rule; None if it passes. A skipped rule is an error."""
    found = verdict(key, seen)
    assert found.outcome is not Outcome.SKIPPED, f"{key} is skipped: {found.evidence}"
    return None if found.outcome is Outcome.PASSED else found.evidence


def changed(original: Subject, sample: Sample) -> Subject:
    """The same tree after one change."""
    mutated = copied(original)
    sample(mutated)
    return mutated
