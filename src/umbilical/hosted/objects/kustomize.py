"""Rendered objects as kustomize wants them: a base for each cluster, and a component that patches what others made.

A base cannot change what stands outside of it. A component can: it is named beside the resources that it patches.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from umbilical.manifests.objects import Object

FILE: Final = "kustomization.yaml"
_GROUP: Final = "kustomize.config.k8s.io"


def base(files: Iterable[str]) -> Object:
    return {"apiVersion": f"{_GROUP}/v1beta1", "kind": "Kustomization", "resources": sorted(files)}


def component(patches: Mapping[str, Object]) -> Object:
    """`patches` are targets by file name, in the order in which they are applied."""
    entries = [{"path": path, "target": target} for path, target in patches.items()]
    return {"apiVersion": f"{_GROUP}/v1alpha1", "kind": "Component", "patches": entries}


def deployment(name: str) -> Object:
    return {"group": "apps", "version": "v1", "kind": "Deployment", "name": name}
