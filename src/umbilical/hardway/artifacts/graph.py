"""What is made from what: the recipes of the hard way in their order, rendered, with a hash of every artifact.

A recipe is a pure function of the inputs and of what the recipes that it needs have made.
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
"""Gets all that the needed recipes made, and returns what is new. Paths are below artifacts/, see `layout`."""


@dataclass(frozen=True)
class Recipe:
    id: str
    stage: int
    """The stage that writes its files."""
    render: Renderer
    needs: tuple[str, ...] = ()
    """Ids of recipes that come before."""


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
"""Recipes that cannot be made before a release is read."""


class GraphError(ValueError):
    """The recipes do not make a graph without circles."""


@dataclass(frozen=True)
class Rendering:
    tree: AssetTree
    """All that was made, in the order of the recipes."""
    by_recipe: Mapping[str, AssetTree]
    hashes: Mapping[str, str]
    """Recipe id -> content hash of all that it made."""
    files: Mapping[int, tuple[str, ...]]
    """Number of a stage -> the paths that it writes."""


def render(inputs: Inputs, recipes: Sequence[Recipe] = RECIPES) -> Rendering:
    """Make every artifact. A recipe sees what the recipes that it names have made, and nothing else.

    Raises:
        GraphError: the recipes need each other in a circle, or name one that is not there.
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
    """Put each recipe behind those that it needs; otherwise the order stays."""
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
    """A file is another one also when only who may read it changed."""
    return hashlib.sha256(b"%o\0%b" % (asset.mode, asset.content)).hexdigest()


def tree_hash(tree: Iterable[Asset]) -> str:
    """Hash files with their paths; in which order they were made is no difference."""
    lines = sorted(f"{asset_hash(asset)} {asset.path}\n" for asset in tree)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check(recipes: Sequence[Recipe]) -> None:
    ids = [recipe.id for recipe in recipes]
    doubles = sorted({one for one in ids if ids.count(one) > 1})
    if doubles:
        raise GraphError(f"two recipes are called {doubles[0]}")
    for recipe in recipes:
        unknown = [need for need in recipe.needs if need not in ids]
        if unknown:
            raise GraphError(f"{recipe.id} needs {unknown[0]}, and there is no such recipe")
