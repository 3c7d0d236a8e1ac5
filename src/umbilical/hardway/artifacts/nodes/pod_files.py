"""Static pods of a node, with everything of ours that they read."""

import posixpath
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes.parts import Parts
from umbilical.hardway.artifacts.static_pods.paths import files_needed
from umbilical.hardway.config.cluster import Node
from umbilical.manifests.tree import AssetTree

_DIRECTORY_MODES: Final = {
    layout.NODE_MANIFESTS: 0o755,
    layout.NODE_LATE_MANIFESTS: 0o755,
    layout.NODE_CONFIGS: 0o755,
    layout.NODE_SECRETS: 0o700,
    layout.MASTER_SECRETS: 0o700,
    layout.NODE_KUBECONFIGS: 0o700,
}


def add_pods(parts: Parts, inputs: Inputs, node: Node, made: AssetTree) -> None:
    """Lay the node's pods, those that wait included, and the files that they name."""
    for path, artifact in files_needed(inputs, node).items():
        add_artifact(parts, path, artifact, made)


def add_artifact(parts: Parts, path: str, artifact: str, made: AssetTree) -> None:
    """Lay an artifact; two may want the same one."""
    if path not in parts.files:
        parts.files.add(path, made[artifact].content, made[artifact].mode)
    directory = posixpath.dirname(path)
    if directory in _DIRECTORY_MODES:
        parts.directories.update({directory: _DIRECTORY_MODES[directory]})
