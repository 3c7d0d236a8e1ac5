"""Static pods of test clusters, read back from what was rendered."""

from functools import cache
from typing import Any

import yaml
from tests.support import hardway

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.static_pods.placement import PodPlacement
from umbilical.hardway.artifacts.static_pods.pods import render_static_pods
from umbilical.hardway.config.cluster import ClusterProfile, Switch
from umbilical.manifests.tree import AssetTree


@cache
def inputs(profile: ClusterProfile, masters: int = 3, workers: int = 2) -> Inputs:
    """With everything switched on."""
    return hardway.inputs(profile, masters, workers, kube_proxy=Switch.ON)


def placement(profile: ClusterProfile, node_id: str = "bootstrap") -> PodPlacement:
    given = inputs(profile)
    return PodPlacement(given, given.cluster.node(node_id))


@cache
def tree(profile: ClusterProfile) -> AssetTree:
    return render_static_pods(inputs(profile), AssetTree())


def document(profile: ClusterProfile, path: str) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(tree(profile)[path].content)
    return value


def flags(pod: dict[str, Any], container: int = 0) -> dict[str, list[str]]:
    """Flag -> all of its values, in order."""
    found: dict[str, list[str]] = {}
    for word in pod["spec"]["containers"][container]["args"]:
        name, _, value = word.removeprefix("--").partition("=")
        found.setdefault(name, []).append(value)
    return found
