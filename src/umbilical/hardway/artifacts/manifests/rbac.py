"""Roles and bindings that are needed before operators run, and the release's security context constraints."""

import re
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.objects import (
    INFRA,
    MACHINE_CONFIG,
    access,
    cluster_role,
    cluster_role_binding,
    service_account,
    user,
)
from umbilical.manifests.objects import Object

KUBE_APISERVER_USER: Final = "system:kube-apiserver"
"""Common name of kube-apiserver's client certificate for kubelets."""
BOOTSTRAPPER: Final = "system:bootstrapper"
"""Common name in a new kubelet's bootstrap certificate, in the kubernetes profile."""
NODE_BOOTSTRAPPER: Final = service_account(MACHINE_CONFIG, "node-bootstrapper")
"""The same in OpenShift: the certificate has the name of this service account."""
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
    """Bind the user of the kubelets' bootstrap kubeconfig, with which kube-proxy runs until OVN implements Services."""
    if not inputs.cluster.has_kube_proxy:
        return []
    return [cluster_role_binding("bootstrap-kube-proxy", "system:node-proxier", NODE_BOOTSTRAPPER)]


def _policy_controllers() -> list[Object]:
    """Roles for the controllers of cluster-policy-controller, which runs on the bootstrap node.

    Without the first one namespaces get no UID ranges, and SCC admission rejects pods later.
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


CONSTRAINTS_FILE: Final = re.compile(
    r"(?:.*/)?0000_20_kube-apiserver-operator_00_(?:scc|cr-scc|crb-systemauthenticated-scc)-.+\.ya?ml"
)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Roles come before bindings: a binding's role has to exist.
_ORDER: Final = ("SecurityContextConstraints", "ClusterRole", "ClusterRoleBinding")


def security_constraints(inputs: Inputs) -> list[Object]:
    """Return the release's constraints. Raises RenderError: UMB715, there are none, or a file is not readable."""
    manifests = inputs.payload.manifests
    found = [
        one
        for name in sorted(manifests)
        if CONSTRAINTS_FILE.fullmatch(name)
        for one in _documents(name, manifests[name])
    ]
    chosen = [one for one in found if crds.is_included(one)]
    if not any(one.get("kind") == _ORDER[0] for one in chosen):
        raise _unusable("no file matches 0000_20_kube-apiserver-operator_00_scc-*.yaml")
    return sorted(chosen, key=lambda one: (_ORDER.index(one["kind"]), one["metadata"]["name"]))


def _documents(file: str, content: bytes) -> list[Object]:
    try:
        found = list(yaml.load_all(content, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"{file} is not YAML: {str(error).splitlines()[0]}") from None
    for one in found:
        if not isinstance(one, dict) or one.get("kind") not in _ORDER or not _has_name(one):
            raise _unusable(f"{file} has an object that is neither a constraint nor a role nor a binding")
    return found


def _has_name(document: Object) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def _unusable(why: str) -> RenderError:
    remedy = "extract the release again: umbilical explain 04"
    return RenderError("UMB715", "the release's security context constraints were not read", why, remedy)
