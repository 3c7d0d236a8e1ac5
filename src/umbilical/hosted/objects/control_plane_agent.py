"""The agents beside the control plane: by them kube-apiserver reaches aggregated API servers of its own namespace."""

from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.agent_pod import (
    GRACE_SECONDS,
    LABELS,
    agent_container,
    agent_flags,
    agent_volumes,
    pod_template,
)
from umbilical.hosted.objects.identities import identifier
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, manifest

_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_DEDICATED: Final = "hypershift.openshift.io/control-plane"
_DEDICATED_TO: Final = "hypershift.openshift.io/cluster"
"""Labels and taints of nodes that HyperShift keeps for control planes, and for the one of a namespace."""
_MEMBER: Final = "hypershift.openshift.io/hosted-control-plane"
"""Label of the pods of a control plane; its value is their namespace."""


def control_plane_agent(spec: HostedSpec, fingerprint: str) -> list[Object]:
    """Return nothing while no address is known: an agent without identifiers is chosen for nothing.

    HyperShift starts it with empty identifiers, and it stays so until somebody restarts it.
    """
    if not spec.known_addresses:
        return []
    found = [_deployment(spec, fingerprint)]
    if spec.agents.control_plane_replicas > 1:
        found.append(_disruption_budget(spec))
    return found


def identifiers(spec: HostedSpec) -> str:
    return "&".join(identifier(address) for address in spec.known_addresses)


def _deployment(spec: HostedSpec, fingerprint: str) -> Object:
    body = {
        "replicas": spec.agents.control_plane_replicas,
        "selector": {"matchLabels": dict(LABELS)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": pod_template(spec, _pod(spec), fingerprint),
    }
    return manifest("apps/v1", "Deployment", metadata(spec, names.AGENT, spec.namespace, LABELS), spec=body)


def _pod(spec: HostedSpec) -> Object:
    flags = agent_flags(names.SERVER, names.AGENT_PORT, identifiers(spec))
    return {
        "serviceAccountName": names.AGENT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # kube-apiserver's own: whatever evicts this agent takes aggregated APIs away.
        "priorityClassName": spec.priority_class,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "affinity": {**_near(spec), "podAntiAffinity": _apart(spec)},
        "tolerations": [_toleration(_DEDICATED, "true"), _toleration(_DEDICATED_TO, spec.namespace)],
        "securityContext": _pod_security(spec.agents.control_plane_user),
        "containers": [agent_container(spec, flags)],
        "volumes": agent_volumes(names.SECRET_CONTROL_PLANE_AGENT, names.CLUSTER_CA_KEY),
    }


def _pod_security(user: int) -> Object:
    context: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    # An SCC assigns user and group out of the namespace's range, and refuses pods that ask for others.
    return {**context, "runAsUser": user, "runAsGroup": user, "fsGroup": user} if user else context


def _near(spec: HostedSpec) -> Object:
    """To nodes that are kept for this: a toleration alone lets it go there and draws it nowhere."""
    dedicated = [_preferred(50, _DEDICATED, "true"), _preferred(100, _DEDICATED_TO, spec.namespace)]
    members = {"labelSelector": {"matchLabels": {_MEMBER: spec.namespace}}, "topologyKey": _HOSTNAME}
    beside = [{"weight": 100, "podAffinityTerm": members}]
    return {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": dedicated},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": beside},
    }


def _preferred(weight: int, label: str, value: str) -> Object:
    return {
        "weight": weight,
        "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]},
    }


def _apart(spec: HostedSpec) -> Object:
    """One node each, for sure where there are several; one zone each, where there are zones."""
    labels = {"matchLabels": {**LABELS, **spec.labels}}
    zone = {"weight": 100, "podAffinityTerm": {"labelSelector": labels, "topologyKey": _ZONE}}
    node = {"labelSelector": labels, "topologyKey": _HOSTNAME}
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [zone],
        "requiredDuringSchedulingIgnoredDuringExecution": [node],
    }


def _toleration(key: str, value: str) -> Object:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _disruption_budget(spec: HostedSpec) -> Object:
    body = {"maxUnavailable": 1, "selector": {"matchLabels": dict(LABELS)}}
    head = metadata(spec, names.AGENT, spec.namespace, LABELS)
    return manifest("policy/v1", "PodDisruptionBudget", head, spec=body)
