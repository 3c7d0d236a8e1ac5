"""The recipes in dependency order, and the rendering of all artifacts with a hash for each.

A recipe is a pure function of the inputs and of the artifacts of the recipes that it needs.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts.certificates import render_certificates
from umbilical.hardway.artifacts.infrastructure.render import render_infrastructure
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.kubeconfigs import render_kubeadmin, render_kubeconfigs
from umbilical.hardway.artifacts.machine_config import render_machine_config
from umbilical.hardway.artifacts.manifests.catalogue import render_manifests
from umbilical.hardway.artifacts.nodes.render import render_nodes
from umbilical.hardway.artifacts.static_pods.pods import render_static_pods
from umbilical.manifests.tree import Asset, AssetTree

Renderer = Callable[[Inputs, AssetTree], AssetTree]
"""Gets the artifacts of the needed recipes and returns new ones. Paths are below artifacts/, see `layout`."""


@dataclass(frozen=True)
class Recipe:
    id: str
    stage: int
    """The stage that writes its files."""
    render: Renderer
    needs: tuple[str, ...] = ()
    """Ids of the recipes that must be rendered first."""


RECIPES: Final[tuple[Recipe, ...]] = (
    Recipe("infrastructure", 2, render_infrastructure),
    Recipe("pki", 5, render_certificates),
    Recipe("kubeconfigs", 6, render_kubeconfigs, ("pki",)),
    Recipe("kubeadmin", 6, render_kubeadmin),
    Recipe("static-pods", 7, render_static_pods, ("pki", "kubeconfigs")),
    Recipe("manifests", 7, render_manifests, ("pki",)),
    Recipe("machine-config", 4, render_machine_config, ("manifests", "pki")),
    Recipe("ignition", 8, render_nodes, ("pki", "kubeconfigs", "static-pods")),
)
NEED_RELEASE: Final = frozenset({"static-pods", "manifests", "machine-config", "ignition"})
"""Recipes that need an extracted release."""


class GraphError(ValueError):
    """The recipes' needs have a cycle or name an unknown recipe."""


@dataclass(frozen=True)
class Rendering:
    tree: AssetTree
    """All artifacts, in the order of the recipes."""
    by_recipe: Mapping[str, AssetTree]
    hashes: Mapping[str, str]
    """Recipe id -> hash of its artifacts."""
    files: Mapping[int, tuple[str, ...]]
    """Number of a stage -> the paths that it writes."""


def render(inputs: Inputs, recipes: Sequence[Recipe] = RECIPES) -> Rendering:
    """Render every artifact. A recipe gets only the artifacts of the recipes that it needs.

    Raises:
        GraphError: the recipes need each other in a cycle, or need an unknown one.
        RenderError: UMB111, two recipes write the same path.
    """
    made: dict[str, AssetTree] = {}
    files: dict[int, tuple[str, ...]] = {}
    for recipe in in_order(recipes):
        tree = recipe.render(inputs, joined(made[one] for one in recipe.needs))
        made[recipe.id] = tree
        files[recipe.stage] = (*files.get(recipe.stage, ()), *(asset.path for asset in tree))
    hashes = {one: tree_hash(tree) for one, tree in made.items()}
    return Rendering(joined(made.values()), made, hashes, files)


def in_order(recipes: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """Put each recipe after those that it needs; otherwise keep the order."""
    _check(recipes)
    ready: dict[str, Recipe] = {}
    left = list(recipes)
    while left:
        following = next((one for one in left if all(need in ready for need in one.needs)), None)
        if following is None:
            raise GraphError(f"these recipes need each other: {', '.join(one.id for one in left)}")
        ready[following.id] = following
        left.remove(following)
    return tuple(ready.values())


def joined(trees: Iterable[AssetTree]) -> AssetTree:
    whole = AssetTree()
    for tree in trees:
        for asset in tree:
            whole.add(asset.path, asset.content, asset.mode)
    return whole


def asset_hash(asset: Asset) -> str:
    """Hash content and mode: a changed mode is a change too."""
    return hashlib.sha256(b"%o\0%b" % (asset.mode, asset.content)).hexdigest()


def tree_hash(tree: Iterable[Asset]) -> str:
    """Hash files with their paths, independent of their order."""
    lines = sorted(f"{asset_hash(asset)} {asset.path}\n" for asset in tree)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check(recipes: Sequence[Recipe]) -> None:
    ids = [recipe.id for recipe in recipes]
    doubles = sorted({one for one in ids if ids.count(one) > 1})
    if doubles:
        raise GraphError(f"two recipes have the id {doubles[0]}")
    for recipe in recipes:
        unknown = [need for need in recipe.needs if need not in ids]
        if unknown:
            raise GraphError(f"{recipe.id} needs {unknown[0]}, which does not exist")
