"""A stage that only writes what its recipes made, and lets the lint judge it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umbilical.checks.check import Check
from umbilical.hardway.artifacts.graph import RECIPES
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.stages import artifact_files
from umbilical.hardway.stages.lint_checks import lint_checks


@dataclass(frozen=True)
class ArtifactStage:
    number: int
    name: str
    title: str
    groups: tuple[str, ...]
    """Letters of the lint rules that judge it."""
    needs: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()
    """Single rules of other groups."""

    def inputs(self, site: Site) -> Mapping[str, str]:
        """What its recipes made; without a release some of them made nothing yet."""
        mine = (recipe.id for recipe in RECIPES if recipe.stage == self.number)
        return {name: site.hashes[name] for name in mine if name in site.hashes}

    def steps(self, site: Site) -> Sequence[Step]:
        return [
            *artifact_files.writing_steps(site, self.number),
            *artifact_files.sweeping_steps(site, self.number),
        ]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [artifact_files.written_check(self.number), *lint_checks(site, self.groups, self.rules)]

    def outputs(self, site: Site) -> Mapping[str, str]:
        return artifact_files.hashes(site, self.number)
