"""Who may do what before operators come: nodes that ask for certificates, kube-apiserver at kubelets, kube-proxy."""

from typing import Final

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.namespaces import INFRA, MACHINE_CONFIG
from umbilical.hardway.artifacts.manifests.objects import (
    access,
    cluster_role,
    cluster_role_binding,
    service_account,
    user,
)
from umbilical.manifests.objects import Object

KUBE_APISERVER_USER: Final = "system:kube-apiserver"
"""The common name with which kube-apiserver shows itself to kubelets."""
BOOTSTRAPPER: Final = "system:bootstrapper"
"""The common name with which a new kubelet asks, in the kubernetes profile."""
NODE_BOOTSTRAPPER: Final = service_account(MACHINE_CONFIG, "node-bootstrapper")
"""The same in OpenShift: a certificate with the name of this service account."""
_READ: Final = ("get", "list", "watch")


def openshift_rbac(inputs: Inputs) -> list[Object]:
    return [
        cluster_role_binding("system-bootstrap-node-bootstrapper", "system:node-bootstrapper", NODE_BOOTSTRAPPER),
        cluster_role("kube-apiserver", access("", ["nodes/proxy"], ["get", "create"])),
        cluster_role_binding("kube-apiserver", "kube-apiserver", user(KUBE_APISERVER_USER)),
        *_policy_controllers(),
        *_kube_proxy(inputs),
    ]


def kubernetes_rbac(_: Inputs) -> list[Object]:
    # kube-proxy is not here: Kubernetes itself binds User system:kube-proxy to system:node-proxier.
    return [
        cluster_role_binding("kubelet-bootstrap", "system:node-bootstrapper", user(BOOTSTRAPPER)),
        cluster_role_binding("kube-apiserver-to-kubelet", "system:kubelet-api-admin", user(KUBE_APISERVER_USER)),
    ]


def _kube_proxy(inputs: Inputs) -> list[Object]:
    """It runs with the kubelet's bootstrap kubeconfig, until OVN implements services."""
    if not inputs.cluster.has_kube_proxy:
        return []
    return [cluster_role_binding("bootstrap-kube-proxy", "system:node-proxier", NODE_BOOTSTRAPPER)]


def _policy_controllers() -> list[Object]:
    """Controllers of cluster-policy-controller, which runs beside kube-controller-manager on the bootstrap node.

    Without the first, namespaces get no ranges of user ids, and pods that SCCs judge cannot be admitted later.
    """
    events = access("", ["events"], ["create", "patch", "update"])
    namespaces = ("namespaces",)
    ranges = access("security.internal.openshift.io", ["rangeallocations"], [*_READ, "create", "update"])
    syncer = (
        access("", namespaces, [*_READ, "patch"]),
        access("", ["serviceaccounts"], _READ),
        access("security.openshift.io", ["securitycontextconstraints"], _READ),
        access("rbac.authorization.k8s.io", ["roles", "rolebindings", "clusterroles", "clusterrolebindings"], _READ),
    )
    built_in = access("", namespaces, ["patch"], resourceNames=["default", "kube-public", "kube-system"])
    return [
        *_controller(
            "namespace-security-allocation-controller",
            ranges,
            access("", namespaces, [*_READ, "update", "patch"]),
            events,
        ),
        *_controller("podsecurity-admission-label-syncer-controller", *syncer, events),
        *_controller("privileged-namespaces-psa-label-syncer", access("", namespaces, _READ), built_in),
    ]


def _controller(name: str, *rules: Object) -> list[Object]:
    role = f"system:openshift:controller:{name}"
    return [cluster_role(role, *rules), cluster_role_binding(role, role, service_account(INFRA, name))]
