"""From inputs and earlier artifacts to the Ignition config of every node."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Node, Role
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.hardway.nodes.base import base_of, empty_config
from umbilical.assets.hardway.nodes.bootstrap import bootstrap_parts
from umbilical.assets.hardway.nodes.member import member_parts
from umbilical.assets.hardway.nodes.merging import format_config, merge
from umbilical.assets.tree import SECRET_MODE, AssetTree
from umbilical.ignition.config import Config


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
