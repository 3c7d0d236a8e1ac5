"""Static pods of a node with the files that they read: found in the pods themselves, so that none can be forgotten."""

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Node, Role
from umbilical.assets.hardway.nodes.parts import Parts
from umbilical.assets.tree import PUBLIC_MODE, Asset, AssetTree

# Where an artifact of this name can lie below artifacts/; names are unique over all of them.
_SOURCES: Final = (layout.TLS, layout.BUNDLES, layout.AUTH)
_REFERENCE: Final = re.compile(
    rb"(?P<folder>%s|%s)/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)"
    % (re.escape(layout.POD_SECRETS.encode()), re.escape(layout.NODE_KUBECONFIGS.encode()))
)
_SECRET_DIRECTORY_MODE: Final = 0o700


def add_pods(parts: Parts, node: Node, made: AssetTree) -> None:
    """Lay the node's pods, those that wait included, and what their flags name."""
    for source, target in (
        (layout.STATIC_PODS, layout.NODE_MANIFESTS),
        (layout.LATE_STATIC_PODS, layout.NODE_LATE_MANIFESTS),
    ):
        for asset in _below(made, f"{source}/{node.id}"):
            parts.files.add(f"{target}/{posixpath.basename(asset.path)}", asset.content, PUBLIC_MODE)
            parts.make_directories({target: 0o755})
    for folder, name in _references(node, made):
        add_secret(parts, node, made, folder, name)


def add_secret(parts: Parts, node: Node, made: AssetTree, folder: str, name: str) -> None:
    """Lay one key, certificate or kubeconfig where a pod looks for it under `folder`; once is enough.

    What no recipe made is left out: the lint names the flag that asks for it.
    """
    directory = _on_node(node, folder)
    path = f"{directory}/{name}"
    found = next((made[f"{source}/{name}"] for source in _SOURCES if f"{source}/{name}" in made), None)
    if found is not None and path not in parts.files:
        parts.files.add(path, found.content, found.mode)
        parts.make_directories({directory: _SECRET_DIRECTORY_MODE})


def pods_of(node: Node, made: AssetTree) -> list[Asset]:
    return [
        asset
        for source in (layout.STATIC_PODS, layout.LATE_STATIC_PODS)
        for asset in _below(made, f"{source}/{node.id}")
    ]


def _references(node: Node, made: AssetTree) -> list[tuple[str, str]]:
    found = {
        (match["folder"].decode(), match["name"].decode())
        for pod in pods_of(node, made)
        for match in _REFERENCE.finditer(pod.content)
    }
    return sorted(found)


def _on_node(node: Node, folder: str) -> str:
    if folder != layout.POD_SECRETS:
        return folder
    return layout.NODE_SECRETS if node.role is Role.BOOTSTRAP else layout.MASTER_SECRETS


def _below(made: AssetTree, folder: str) -> Iterator[Asset]:
    return iter(sorted((one for one in made if one.path.startswith(f"{folder}/")), key=lambda one: one.path))
