"""From inputs and earlier artifacts to the Ignition config of every node."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes.base import base_of, empty_config
from umbilical.hardway.artifacts.nodes.bootstrap import bootstrap_parts
from umbilical.hardway.artifacts.nodes.member import member_parts
from umbilical.hardway.artifacts.nodes.merging import format_config, merge
from umbilical.hardway.config.cluster import Node, Role
from umbilical.ignition.config import Config
from umbilical.manifests.tree import SECRET_MODE, AssetTree


def render_nodes(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Make <node id>.ign for every node. Keys are in each of them."""
    tree = AssetTree()
    for node in inputs.cluster.nodes:
        tree.add(layout.ignition(node), node_config(inputs, node, made), SECRET_MODE)
    return tree


def node_config(inputs: Inputs, node: Node, made: AssetTree) -> bytes:
    if node.role is Role.BOOTSTRAP:
        return format_config(merge(empty_config(), bootstrap_parts(inputs, made)))
    base = base_of(inputs, node)
    return format_config(merge(json.loads(base.config), member_parts(inputs, node, base, made)))


@dataclass(frozen=True)
class FileSize:
    path: str
    bytes_written: int
    """On the node."""
    bytes_carried: int
    """In the config, encoded."""


def size_report(config: Config) -> Iterator[FileSize]:
    """Say what a config's bytes are spent on, the largest first."""
    sizes = [FileSize(file.path, len(file.content()), len(file.source or "")) for file in config.files if file.source]
    return iter(sorted(sizes, key=lambda size: (-size.bytes_carried, size.path)))
