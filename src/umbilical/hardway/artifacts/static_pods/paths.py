"""Which artifacts a node's static pods need, and where: found in the pods themselves, so that nothing can drift."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.static_pods.pods import files_of
from umbilical.hardway.artifacts.static_pods.seat import Seat, secret_artifact
from umbilical.hardway.config.cluster import Node

_SECRET: Final = re.compile(re.escape(layout.POD_SECRETS) + r"/([A-Za-z0-9.-]+)")
_KUBECONFIG: Final = re.compile(re.escape(layout.NODE_KUBECONFIGS) + r"/([a-z-]+)\.kubeconfig")
_KUBELET_KUBECONFIG: Final = "kubelet-bootstrap"


def files_needed(inputs: Inputs, node: Node) -> dict[str, str]:
    """Return path on the node -> path of the artifact: the pods, their configs, and all that they read of ours.

    What is made on the node itself (the tunnel's certificates) is not among them.
    """
    seat = Seat(inputs, node)
    needed: dict[str, str] = {}
    for file in files_of(inputs, node):
        needed[file.on_node()] = file.artifact(node)
        for text in _texts(file.make(seat)):
            needed.update(_mentioned(seat, text))
    return dict(sorted(needed.items()))


def _mentioned(seat: Seat, text: str) -> Iterator[tuple[str, str]]:
    for name in _SECRET.findall(text):
        yield posixpath.join(seat.secrets_on_host, name), secret_artifact(name)
    for name in _KUBECONFIG.findall(text):
        yield posixpath.join(layout.NODE_KUBECONFIGS, f"{name}.kubeconfig"), layout.kubeconfig(name)
    if text == layout.BOOTSTRAP_KUBECONFIG:
        yield text, layout.kubeconfig(_KUBELET_KUBECONFIG)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
