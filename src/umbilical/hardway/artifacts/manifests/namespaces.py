"""Namespaces of OpenShift that exist before the version operator would make them."""

from collections.abc import Mapping
from typing import Final

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.objects import head
from umbilical.manifests.objects import Object, manifest

CONFIG: Final = "openshift-config"
CONFIG_MANAGED: Final = "openshift-config-managed"
ETCD: Final = "openshift-etcd"
KUBE_APISERVER_OPERATOR: Final = "openshift-kube-apiserver-operator"
CONTROLLER_MANAGER_OPERATOR: Final = "openshift-kube-controller-manager-operator"
MACHINE_CONFIG: Final = "openshift-machine-config-operator"
INFRA: Final = "openshift-infra"
STATIC_PODS: Final = (
    ETCD,
    "openshift-kube-apiserver",
    "openshift-kube-controller-manager",
    "openshift-kube-scheduler",
)
"""Their pods use the host's network and files, and come before everything that could judge them."""
OTHERS: Final = (
    CONFIG,
    CONFIG_MANAGED,
    KUBE_APISERVER_OPERATOR,
    CONTROLLER_MANAGER_OPERATOR,
    MACHINE_CONFIG,
    INFRA,
    "openshift-cluster-version",
    "openshift-node",
)
_PRIVILEGED: Final[Mapping[str, str]] = {
    # At this level OpenShift's own admission (SCC, quotas) lets a namespace alone.
    "openshift.io/run-level": "0",
    "pod-security.kubernetes.io/enforce": "privileged",
    "pod-security.kubernetes.io/audit": "privileged",
    "pod-security.kubernetes.io/warn": "privileged",
}
_NONE: Final[Mapping[str, str]] = {}
_ANNOTATIONS: Final[Mapping[str, str]] = {
    # A default node selector of the cluster would keep pods off the masters.
    "openshift.io/node-selector": "",
    "workload.openshift.io/allowed": "management",
}


def namespaces(_: Inputs) -> list[Object]:
    found = dict.fromkeys(STATIC_PODS, _PRIVILEGED) | dict.fromkeys(OTHERS, _NONE)
    return [
        manifest("v1", "Namespace", head(name, labels=found[name], annotations=_ANNOTATIONS)) for name in sorted(found)
    ]
