"""All manifests of a cluster, one file each, named so that their order is the one in which they can be created."""

from umbilical.hardway.artifacts import crds, layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.catalogue import CRD_PREFIX, FILES
from umbilical.hardway.artifacts.manifests.file import add_objects
from umbilical.manifests.tree import PUBLIC_MODE, AssetTree


def render_manifests(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Make manifests/.

    Raises:
        RenderError: UMB715 to UMB719, the release lacks something.
    """
    tree = AssetTree()
    if inputs.cluster.is_openshift:
        for crd in crds.bootstrap_crds(inputs.payload.crds):
            tree.add(f"{layout.MANIFESTS}/{CRD_PREFIX}{crd.name}.yaml", crd.content, PUBLIC_MODE)
    for file in FILES[inputs.cluster.profile]:
        objects = file.make(inputs)
        if objects:
            add_objects(tree, file.name, objects)
    return tree
