"""The tunnel of a cluster that is built by hand, as the assets of bootstrap tunnels know one."""

from typing import Final

from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.fault import RenderError
from umbilical.hardway.artifacts.inputs import TUNNEL_IMAGE, Inputs

KUBERNETES_NAMESPACE: Final = "bootstrap-konnectivity"
"""One of its own, so that one delete removes the agents after the pivot."""


def tunnel_spec(inputs: Inputs) -> TunnelSpec:
    """Say what server, agents and egress selector are made from.

    Raises:
        RenderError: UMB716, the tunnel is wished for and the release has no programs for it.
    """
    image = inputs.payload.images.get(TUNNEL_IMAGE)
    if image is None:
        why = f"konnectivity is on, and the release has no image {TUNNEL_IMAGE}"
        raise RenderError("UMB716", "there are no programs for the tunnel", why, "set konnectivity: off, or auto")
    node_ip = inputs.cluster.bootstrap.address
    if inputs.cluster.is_openshift:
        return for_shape(Shape.OPENSHIFT, image=image, node_ip=node_ip)
    # In the nodes' own network: pods' addresses are known to no router outside, so answers would not find back.
    return for_shape(Shape.KUBERNETES, image=image, node_ip=node_ip, namespace=KUBERNETES_NAMESPACE)
