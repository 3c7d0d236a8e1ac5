"""All manifests of a cluster, one file each, named so that their order is the one in which they can be created."""

from umbilical.assets.hardway import crds, layout
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.hardway.manifests.catalogue import CRD_PREFIX, FILES
from umbilical.assets.hardway.manifests.file import add_objects
from umbilical.assets.tree import PUBLIC_MODE, AssetTree


def render_manifests(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Make manifests/.

    Raises:
        AssetError: UMB715 to UMB719, the release lacks something.
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
