"""Static pods are rendered beside the other artifacts and carried to nodes by Ignition: both must be the same."""

import posixpath
from collections.abc import Iterator
from typing import Final

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Node
from umbilical.assets.hardway.lint.facts import Facts
from umbilical.ignition.errors import IgnitionError

PLACES: Final = {
    layout.STATIC_PODS: layout.NODE_MANIFESTS,
    layout.LATE_STATIC_PODS: layout.NODE_LATE_MANIFESTS,
}


def copy_faults(facts: Facts, node: Node) -> Iterator[str]:
    """Name what a node is to run or read, and does not get as it was rendered."""
    carried = _carried(facts, node)
    for folder, place in PLACES.items():
        for asset in facts.below(f"{folder}/{node.id}"):
            name = asset.path.removeprefix(f"{folder}/{node.id}/")
            # What lies deeper is read by a pod, from wherever that one mounts.
            is_pod = "/" not in name
            places = carried.get(asset.content, set())
            if is_pod and f"{place}/{name}" not in places:
                yield f"{asset.path} is not written to {place}/{name} as it is"
            elif not is_pod and posixpath.basename(name) not in map(posixpath.basename, places):
                yield f"{asset.path} is not written as it is"


def _carried(facts: Facts, node: Node) -> dict[bytes, set[str]]:
    found: dict[bytes, set[str]] = {}
    for file in facts.ignition(node).files:
        try:
            found.setdefault(file.content(), set()).add(file.path)
        except IgnitionError:
            # That it cannot be read is another rule's business.
            continue
    return found
