"""Static pods are rendered beside the other artifacts and carried to nodes by Ignition: both must be the same."""

import posixpath
from collections.abc import Iterator
from typing import Final

from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import Node, Role
from umbilical.hardway.lint.facts import Facts

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
    # A rendered MachineConfig brings pods of its own; nothing else does.
    if node.role is Role.BOOTSTRAP or not facts.cluster.is_openshift:
        yield from _unknown(facts, node)


def _unknown(facts: Facts, node: Node) -> Iterator[str]:
    """Name pods that a node would run and nobody has rendered."""
    folders = {place: folder for folder, place in PLACES.items()}
    for file in facts.ignition(node).files:
        place, name = posixpath.split(file.path)
        if place in folders and f"{folders[place]}/{node.id}/{name}" not in facts.assets:
            yield f"{file.path} is written, and {folders[place]}/{node.id}/{name} is missing"


def _carried(facts: Facts, node: Node) -> dict[bytes, set[str]]:
    found: dict[bytes, set[str]] = {}
    for file in facts.ignition(node).files:
        try:
            found.setdefault(file.content(), set()).add(file.path)
        except IgnitionError:
            # That it cannot be read is another rule's business.
            continue
    return found
