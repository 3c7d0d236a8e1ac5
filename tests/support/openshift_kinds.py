"""Kinds of OpenShift that stages look at, served by a real API: any content, and a status of its own."""

from typing import Any, Final

from tests.support.api_stock import condition
from tests.support.release_names import VERSION

OPERATOR: Final = "operator.openshift.io"
CONFIG: Final = "config.openshift.io"
POOLS: Final = "machineconfiguration.openshift.io"
KINDS: Final = {
    "etcds": (OPERATOR, "Etcd"),
    "kubeapiservers": (OPERATOR, "KubeAPIServer"),
    "kubecontrollermanagers": (OPERATOR, "KubeControllerManager"),
    "kubeschedulers": (OPERATOR, "KubeScheduler"),
    "clusteroperators": (CONFIG, "ClusterOperator"),
    "clusterversions": (CONFIG, "ClusterVersion"),
    "machineconfigpools": (POOLS, "MachineConfigPool"),
}


def definitions() -> list[dict[str, Any]]:
    return [_definition(plural, group, kind) for plural, (group, kind) in KINDS.items()]


def _definition(plural: str, group: str, kind: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def reporting(plural: str, name: str = "cluster", **status: Any) -> dict[str, Any]:
    """An object whose controller has reported."""
    group, kind = KINDS[plural]
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "status": status}


def revisions(plural: str, *numbers: int) -> dict[str, Any]:
    rows = [{"nodeName": f"master-{index}", "currentRevision": number} for index, number in enumerate(numbers)]
    return reporting(plural, nodeStatuses=rows)


def settled(name: str, since: str = "2026-01-01T00:00:00Z", **changes: str) -> dict[str, Any]:
    """A ClusterOperator; `changes` are other states of its conditions."""
    states = {"Available": "True", "Degraded": "False", "Progressing": "False", **changes}
    rows = [condition(kind, status, f"{kind} of {name}", since) for kind, status in states.items()]
    return reporting("clusteroperators", name, conditions=rows, versions=[{"name": "operator", "version": VERSION}])


def version(state: str = "Completed", reached: str = VERSION, **changes: str) -> dict[str, Any]:
    states = {"Available": "True", "Failing": "False", "Progressing": "False", **changes}
    rows = [condition(kind, status, f"{kind} of the version") for kind, status in states.items()]
    history = [{"state": state, "version": reached}] if state else []
    return reporting("clusterversions", "version", conditions=rows, history=history)


def pool(name: str, machines: int, updated: int | None = None, degraded: int = 0) -> dict[str, Any]:
    counts = {"machineCount": machines, "updatedMachineCount": machines if updated is None else updated}
    return reporting("machineconfigpools", name, **counts, readyMachineCount=machines, degradedMachineCount=degraded)
