"""What the container runtime is told. Its own configuration belongs to the machine; here is what differs."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.config.cluster import Node
from umbilical.manifests.objects import CONFIG_DIRECTORY, bridge_conflist
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE

CRIO_DROP_INS: Final = "/etc/crio/crio.conf.d"
PAUSE_DROP_IN: Final = f"{CRIO_DROP_INS}/00-pause.conf"
PAUSE_IMAGE: Final = "pod"
"""Its tag in a release."""
CONFLIST: Final = f"{CONFIG_DIRECTORY}/10-pods.conflist"


def add_pause_image(parts: Parts, seat: Seat) -> None:
    """CRI-O's compiled-in pause image is on a registry that the pull secret does not know."""
    content = (
        "[crio.image]\n"
        f'pause_image = "{seat.image(PAUSE_IMAGE)}"\n'
        f'pause_image_auth_file = "{layout.PULL_SECRET}"\n'
        # The image has no /pause, which CRI-O would run.
        'pause_command = "/usr/bin/pod"\n'
    )
    parts.files.add(PAUSE_DROP_IN, content.encode(), PUBLIC_MODE)


def add_pull_secret(parts: Parts, inputs: Inputs) -> None:
    parts.files.add(layout.PULL_SECRET, inputs.pull_secret, SECRET_MODE)


def add_pod_network(parts: Parts, node: Node) -> None:
    """Where nobody else brings one: a bridge, and addresses from the node's own piece of the pod network."""
    if node.pod_network is not None:
        content = bridge_conflist("pods", layout.POD_BRIDGE, [node.pod_network])
        parts.files.add(CONFLIST, content, PUBLIC_MODE)
