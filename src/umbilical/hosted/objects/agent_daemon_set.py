"""The agents on the nodes of the hosted cluster: everywhere, from the first minute, before there is a pod network."""

from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.agent_pod import (
    GRACE_SECONDS,
    LABELS,
    LOOPBACK,
    agent_container,
    agent_flags,
    agent_volumes,
    pod_template,
)
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.server_sidecar import LEASE_LABEL
from umbilical.hosted.objects.spec import HostedSpec, ServerCount
from umbilical.manifests.objects import Object, manifest

USER_ID: Final = 1000
EVERY_ADDRESS: Final = "0.0.0.0"


def agent_daemon_set(spec: HostedSpec, fingerprint: str) -> Object:
    """`fingerprint` names the certificates that agents begin with."""
    body = {
        "selector": {"matchLabels": dict(LABELS)},
        # One in ten at a time: one after the other took hours on large clusters (OCPBUGS-24261).
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
        "template": pod_template(spec, _pod(spec), fingerprint),
    }
    return manifest("apps/v1", "DaemonSet", metadata(spec, names.AGENT, names.HOSTED_NAMESPACE, LABELS), spec=body)


def _pod(spec: HostedSpec) -> Object:
    return {
        "serviceAccountName": names.AGENT,
        "automountServiceAccountToken": spec.server_count is ServerCount.LEASES,
        "enableServiceLinks": False,
        "hostNetwork": spec.agents.host_network,
        "dnsPolicy": spec.agents.dns_policy,
        "priorityClassName": "system-node-critical",
        # On nodes that are not ready as well: their pod network may wait for webhooks behind this agent.
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec)],
        "volumes": agent_volumes(names.SECRET_AGENT, names.CA_KEY),
    }


def _container(spec: HostedSpec) -> Object:
    # On the host's network the health port was open to everybody who reached the node (OCPBUGS-63594).
    bind, ask = (LOOPBACK, LOOPBACK) if spec.agents.host_network else (EVERY_ADDRESS, "")
    flags = agent_flags(spec.publishing.host, spec.publishing.port, "default-route=true", bind)
    if spec.server_count is ServerCount.LEASES:
        flags += _lease_flags()
    container = agent_container(spec, flags, ask)
    if spec.proxy.is_set:
        # Not in the manifest: a proxy's URL may hold a password.
        container["envFrom"] = [{"secretRef": {"name": names.PROXY_SECRET}}]
    return container


def _lease_flags() -> list[str]:
    return [
        "--count-server-leases=true",
        f"--lease-namespace={names.HOSTED_NAMESPACE}",
        f"--lease-label-selector={LEASE_LABEL}",
        # The larger of both, so that an agent never looks for less than a server tells.
        "--server-count-source=max",
    ]
