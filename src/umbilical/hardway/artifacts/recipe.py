"""A recipe makes some artifacts: a pure function of the inputs and of what the recipes that it needs have made."""

from collections.abc import Callable
from dataclasses import dataclass

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.manifests.tree import AssetTree

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
