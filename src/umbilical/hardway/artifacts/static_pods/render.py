"""From a cluster to the static pods of its nodes, those that come later included."""

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.static_pods import removals
from umbilical.hardway.artifacts.static_pods.pods import files_of
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.manifests.tree import PUBLIC_MODE, AssetTree


def render_static_pods(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Nothing of what is `made` is read: pods name files by where they lie, and hold none."""
    tree = AssetTree()
    for node in inputs.cluster.nodes:
        for file in files_of(inputs, node):
            tree.add_yaml(file.artifact(node), file.make(Seat(inputs, node)), PUBLIC_MODE)
    tree.add(removals.PATH, removals.write_removals(removals.removals(inputs)), PUBLIC_MODE)
    return tree
