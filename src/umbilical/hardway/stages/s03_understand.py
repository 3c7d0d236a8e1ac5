"""Stage 03: shows which stage will write which files; changes nothing."""

from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.checks.check import Check, Verdict, failed, passed
from umbilical.hardway.artifacts.graph import RECIPES, Recipe, in_order
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, Step


class UnderstandStage:
    number = 3
    name = "understand"
    title = "show what each file is rendered from"
    needs: tuple[int, ...] = ()

    def inputs(self, site: Site) -> Mapping[str, str]:
        return {}

    def steps(self, site: Site) -> Sequence[Step]:
        return [Step("show the graph of the artifacts", "umbilical stage plan", lambda: _show(site))]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return self.own_checks(site)

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return [
            Check(
                "GRAPH-01",
                "every artifact is written by one stage",
                "a file that no stage writes is missing on disk; with two writers the last one wins",
                "report it: this is a bug in umbilical",
                _check_graph,
            )
        ]


def lines(site: Site) -> list[str]:
    """List what each recipe is made from, and how many files each stage writes per folder."""
    told = [_origin(recipe) for recipe in in_order(RECIPES) if recipe.id in site.hashes]
    for number in sorted(number for number, names in site.files.items() if names):
        folders: dict[str, int] = {}
        for name in site.files[number]:
            folder = name.rpartition("/")[0]
            folders[folder] = folders.get(folder, 0) + 1
        told.append(f"stage {number:02} writes " + ", ".join(f"{folder} ({folders[folder]})" for folder in folders))
    return told


def _origin(recipe: Recipe) -> str:
    source = " and ".join(("the config", *recipe.needs))
    return f"{recipe.id} (stage {recipe.stage:02}) from {source}"


def _show(site: Site) -> None:
    for line in lines(site):
        site.reporter.saw(line)


def _check_graph(site: Site) -> Verdict:
    written = [name for names in site.files.values() for name in names]
    orphans = sorted(set(site.assets) - set(written))
    twice = sorted({name for name in written if written.count(name) > 1})
    wrong = [*(f"no stage writes {name}" for name in orphans), *(f"two stages write {name}" for name in twice)]
    return failed("; ".join(wrong[:5])) if wrong else passed()


STAGE: Final[Stage] = UnderstandStage()
TOPIC: Final = stage_topic(
    3,
    "Changes nothing. It shows the dependency graph: keys, then kubeconfigs, then static pods and manifests, then "
    "Ignition, and which stage writes which folder.",
    "You.",
    "Nothing breaks; but a failed stage is easier to fix when you know where its files come from.",
    "umbilical stage plan",
    "Has a similar graph in code, and shows a part of it with `openshift-install graph`.",
)
