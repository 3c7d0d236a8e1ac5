"""The tunnel of a cluster that is built by hand, as the assets of bootstrap tunnels know one."""

from typing import Final

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.inputs import TUNNEL_IMAGE, Inputs
from umbilical.assets.spec import Shape, TunnelSpec, for_shape

KUBERNETES_NAMESPACE: Final = "bootstrap-konnectivity"
"""One of its own, so that one delete removes the agents after the pivot."""


def tunnel_spec(inputs: Inputs) -> TunnelSpec:
    """Say what server, agents and egress selector are made from.

    Raises:
        AssetError: UMB716, the tunnel is wished for and the release has no programs for it.
    """
    image = inputs.payload.images.get(TUNNEL_IMAGE)
    if image is None:
        why = f"konnectivity is on, and the release has no image {TUNNEL_IMAGE}"
        raise AssetError("UMB716", "there are no programs for the tunnel", why, "set konnectivity: off, or auto")
    node_ip = inputs.cluster.bootstrap.address
    if inputs.cluster.is_openshift:
        return for_shape(Shape.OPENSHIFT, image=image, node_ip=node_ip)
    # In the nodes' own network: pods' addresses are known to no router outside, so answers would not find back.
    return for_shape(Shape.KUBERNETES, image=image, node_ip=node_ip, namespace=KUBERNETES_NAMESPACE)
