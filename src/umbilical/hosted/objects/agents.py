"""The agents: on every node of the hosted cluster, even before there is a pod network, and beside the control plane,
through which kube-apiserver reaches aggregated API servers of its own namespace.

Also their ServiceAccounts, and RBAC for leases if leases are used.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.control_plane_files import identifier
from umbilical.hosted.objects.forms import (
    UNPRIVILEGED,
    config_map_volume,
    metadata,
    mount,
    probe,
    requests,
    secret_volume,
)
from umbilical.hosted.objects.monitoring import METRICS_PORT
from umbilical.hosted.objects.server import LEASE_LABEL
from umbilical.hosted.objects.spec import HostedSpec, ServerCount
from umbilical.manifests.objects import Object, manifest

PROGRAM: Final = "/usr/bin/proxy-agent"
LABELS: Final[Mapping[str, str]] = {"app": names.AGENT}
CERTIFICATES_ANNOTATION: Final = "umbilical.dev/certificates-sha256"
# A stopping agent waits for its tunnels; followed logs would keep it for hours.
GRACE_SECONDS: Final = 60
LOOPBACK: Final = "127.0.0.1"


def agent_flags(host: str, port: int, identifiers: str, health_host: str = "") -> list[str]:
    pair, ca = names.AGENT_PAIR_DIRECTORY, names.SERVER_CA_DIRECTORY
    return [
        "--logtostderr=true",
        f"--ca-cert={ca}/{names.CA_KEY}",
        f"--agent-cert={pair}/tls.crt",
        f"--agent-key={pair}/tls.key",
        f"--proxy-server-host={host}",
        f"--proxy-server-port={port}",
        *([f"--health-server-host={health_host}"] if health_host else []),
        f"--health-server-port={names.HEALTH_PORT}",
        f"--agent-identifiers={identifiers}",
        "--keepalive-time=30s",
        "--probe-interval=5s",
        # With HyperShift's 5 s and 30 s an agent behind a load balancer needs half a minute to find three servers.
        "--sync-interval=1s",
        "--sync-interval-cap=10s",
        # Without it an agent that has found all servers stops searching, and stays at two of three servers after a
        # kube-apiserver pod is replaced (OCPBUGS-98467).
        "--sync-forever=true",
        "--v=3",
    ]


def _own_flags(spec: HostedSpec) -> list[str]:
    """What upstream's agent does not know: deny what only the agent's machine should reach."""
    return ["--deny-destination=local"] if spec.is_ours else []


def agent_container(spec: HostedSpec, flags: Sequence[str], health_host: str = "") -> Object:
    timing = {"periodSeconds": 30, "timeoutSeconds": 5}
    port = {"name": METRICS_PORT, "containerPort": names.HEALTH_PORT, "protocol": "TCP"}
    return {
        "name": names.AGENT,
        "image": spec.images.agent,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": [*flags, *_own_flags(spec)],
        # With the host's network a declared port is reserved on every node, for all addresses.
        **({} if health_host == LOOPBACK else {"ports": [port]}),
        "livenessProbe": probe("/healthz", names.HEALTH_PORT, health_host, **timing, failureThreshold=6),
        "readinessProbe": probe("/readyz", names.HEALTH_PORT, health_host, **timing, failureThreshold=1),
        "startupProbe": probe(
            "/healthz", names.HEALTH_PORT, health_host, periodSeconds=5, timeoutSeconds=5, failureThreshold=60
        ),
        "resources": requests("40m", "50Mi"),
        "securityContext": {**UNPRIVILEGED, "runAsNonRoot": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            mount("agent-certs", names.AGENT_PAIR_DIRECTORY),
            mount("konnectivity-ca", names.SERVER_CA_DIRECTORY),
        ],
    }


def agent_volumes(secret_name: str, ca_key: str) -> list[Object]:
    """Mount one key of the CA bundle, as `ca.crt`."""
    return [
        secret_volume("agent-certs", secret_name),
        config_map_volume("konnectivity-ca", names.CA_BUNDLE, {ca_key: names.CA_KEY}),
    ]


def pod_template(spec: HostedSpec, pod: Object, fingerprint: str) -> Object:
    """Annotate it with the certificates' hash if the program reads them only once, as upstream's: pods then roll."""
    head: Object = {"labels": {**LABELS, **spec.labels}}
    if not spec.is_ours:
        head["annotations"] = {CERTIFICATES_ANNOTATION: fingerprint}
    return {"metadata": head, "spec": pod}


USER_ID: Final = 1000
EVERY_ADDRESS: Final = "0.0.0.0"


def agent_daemon_set(spec: HostedSpec, fingerprint: str) -> Object:
    """`fingerprint` is the hash of the agents' certificates."""
    body = {
        "selector": {"matchLabels": dict(LABELS)},
        # 10 % at a time: one by one takes hours on large clusters (OCPBUGS-24261).
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
        "template": pod_template(spec, _node_pod(spec), fingerprint),
    }
    return manifest("apps/v1", "DaemonSet", metadata(spec, names.AGENT, names.HOSTED_NAMESPACE, LABELS), spec=body)


def _node_pod(spec: HostedSpec) -> Object:
    return {
        "serviceAccountName": names.AGENT,
        "automountServiceAccountToken": spec.server_count is ServerCount.LEASES,
        "enableServiceLinks": False,
        "hostNetwork": spec.agents.host_network,
        "dnsPolicy": spec.agents.dns_policy,
        "priorityClassName": "system-node-critical",
        # Also on nodes that are not ready: their pod network may need webhooks behind this agent.
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
    # With the host's network the health port would be open to everybody who reaches the node (OCPBUGS-63594).
    bind, probed = (LOOPBACK, LOOPBACK) if spec.agents.host_network else (EVERY_ADDRESS, "")
    flags = agent_flags(spec.publishing.host, spec.publishing.port, "default-route=true", bind)
    if spec.server_count is ServerCount.LEASES:
        flags += _lease_flags()
    container = agent_container(spec, flags, probed)
    if spec.proxy.is_set:
        # From a Secret: a proxy's URL may hold a password.
        container["envFrom"] = [{"secretRef": {"name": names.PROXY_SECRET}}]
    return container


def _lease_flags() -> list[str]:
    return [
        "--count-server-leases=true",
        f"--lease-namespace={names.HOSTED_NAMESPACE}",
        f"--lease-label-selector={LEASE_LABEL}",
        # The larger of leases and the number that a server reports.
        "--server-count-source=max",
    ]


_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_DEDICATED: Final = "hypershift.openshift.io/control-plane"
_DEDICATED_TO: Final = "hypershift.openshift.io/cluster"
"""Labels and taints of nodes that HyperShift reserves for control planes, or for one control plane."""
_MEMBER: Final = "hypershift.openshift.io/hosted-control-plane"
"""Label of the pods of a control plane; its value is their namespace."""


def control_plane_agent(spec: HostedSpec, fingerprint: str) -> list[Object]:
    """Return nothing while no address is known: an agent without identifiers gets no dials.

    HyperShift starts it with empty identifiers, which last until it is restarted.
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
        "template": pod_template(spec, _control_plane_pod(spec), fingerprint),
    }
    return manifest("apps/v1", "Deployment", metadata(spec, names.AGENT, spec.namespace, LABELS), spec=body)


def _control_plane_pod(spec: HostedSpec) -> Object:
    flags = agent_flags(names.SERVER, names.AGENT_PORT, identifiers(spec))
    return {
        "serviceAccountName": names.AGENT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The same as kube-apiserver's: without this agent aggregated APIs are unreachable.
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
    # An SCC assigns user and group from the namespace's range, and refuses pods with others.
    return {**context, "runAsUser": user, "runAsGroup": user, "fsGroup": user} if user else context


def _near(spec: HostedSpec) -> Object:
    """Prefer nodes reserved for control planes: a toleration alone only permits them."""
    dedicated = [_preferred(50, _DEDICATED, "true"), _preferred(100, _DEDICATED_TO, spec.namespace)]
    members = {"labelSelector": {"matchLabels": {_MEMBER: spec.namespace}}, "topologyKey": _HOSTNAME}
    preferred = [{"weight": 100, "podAffinityTerm": members}]
    return {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": dedicated},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    }


def _preferred(weight: int, label: str, value: str) -> Object:
    return {
        "weight": weight,
        "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]},
    }


def _apart(spec: HostedSpec) -> Object:
    """Require different nodes, prefer different zones."""
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


_CLUSTER_SERVICE = {"kubernetes.io/cluster-service": "true"}


def management_accounts(spec: HostedSpec) -> list[Object]:
    return [_account(spec, spec.namespace)] if spec.known_addresses else []


def hosted_accounts(spec: HostedSpec) -> list[Object]:
    account = _account(spec, names.HOSTED_NAMESPACE)
    return [account, *_lease_rights(spec)] if spec.server_count is ServerCount.LEASES else [account]


def namespace_labels(spec: HostedSpec) -> list[Object]:
    """Allow pods with the host's network in kube-system where pod security is enforced. Sets only labels."""
    if not spec.agents.host_network:
        return []
    labels = {f"pod-security.kubernetes.io/{kind}": "privileged" for kind in ("enforce", "audit", "warn")}
    # Otherwise OpenShift resets them.
    labels["security.openshift.io/scc.podSecurityLabelSync"] = "false"
    return [manifest("v1", "Namespace", {"name": names.HOSTED_NAMESPACE, "labels": labels})]


def _account(spec: HostedSpec, namespace: str) -> Object:
    head = metadata(spec, names.AGENT, namespace, {**LABELS, **_CLUSTER_SERVICE})
    # No token without need; a pod that counts leases mounts one itself.
    return manifest("v1", "ServiceAccount", head, automountServiceAccountToken=False)


def _lease_rights(spec: HostedSpec) -> list[Object]:
    server = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": spec.leases.user}
    agent = {"kind": "ServiceAccount", "name": names.AGENT, "namespace": names.HOSTED_NAMESPACE}
    return [
        *_role(spec, "konnectivity-server-leases", ["get", "create", "update", "list", "delete"], server),
        *_role(spec, "konnectivity-agent-leases", ["get", "list", "watch"], agent),
    ]


def _role(spec: HostedSpec, name: str, verbs: list[str], subject: Object) -> list[Object]:
    head = metadata(spec, name, names.HOSTED_NAMESPACE)
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return [
        manifest("rbac.authorization.k8s.io/v1", "Role", head, rules=rules),
        manifest("rbac.authorization.k8s.io/v1", "RoleBinding", head, roleRef=reference, subjects=[subject]),
    ]
