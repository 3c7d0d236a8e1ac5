"""The agents: one on every node, in the pod network unless the spec says otherwise."""

from typing import Any, Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, BOOTSTRAP_ONLY
from umbilical.bootstrap.render import placeholders
from umbilical.bootstrap.render.container import PKI_MOUNT, container
from umbilical.bootstrap.spec import Shape, TunnelSpec

# Where no SCC hands out a user, Kubernetes needs one that is not root; this is the usual "nonroot" of images.
USER_ID: Final = 65532
# Read by owner and group: the owner is root, the group is the pod's fsGroup, which SCCs set as well.
KEY_MODE: Final = 0o440
GRACE_SECONDS: Final = 10


def agent_daemon_set(spec: TunnelSpec) -> dict[str, Any]:
    key, value = BOOTSTRAP_ONLY
    labels = {"app": AGENT_NAME, key: value}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AGENT_NAME, "namespace": spec.namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(spec)},
        },
    }


def _pod(spec: TunnelSpec) -> dict[str, Any]:
    # The host's resolver: with the host's network a pod must not wait for cluster DNS, which comes later.
    network = {"hostNetwork": True, "dnsPolicy": "Default"} if spec.host_network else {}
    return {
        **network,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        # The agent asks nothing of the API, so a token would only be something to steal.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # An agent that is told to go waits until it is idle, and kube-apiserver keeps connections to webhooks open.
        # A namespace is looked at again only after half of its pods' grace time, so the cut hangs on it twice.
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": _pod_security(spec),
        "containers": [container(spec, AGENT_NAME, "proxy-agent", _flags(spec))],
        "volumes": [{"name": "pki", "secret": {"secretName": AGENT_SECRET, "defaultMode": KEY_MODE}}],
    }


def _pod_security(spec: TunnelSpec) -> dict[str, Any]:
    context: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if spec.shape is not Shape.KUBERNETES and spec.owns_namespace:
        # No SCC is applied in kube-system. Elsewhere restricted-v2 assigns user and fsGroup out of the namespace's
        # range, and refuses pods that ask for others.
        return context
    return {**context, "runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}


def _flags(spec: TunnelSpec) -> list[str]:
    host = placeholders.NODE_IP if spec.node_ip is None else str(spec.node_ip)
    return [
        "--logtostderr=true",
        f"--ca-cert={PKI_MOUNT}/ca.crt",
        f"--agent-cert={PKI_MOUNT}/tls.crt",
        f"--agent-key={PKI_MOUNT}/tls.key",
        f"--proxy-server-host={host}",
        f"--proxy-server-port={spec.agent_port}",
        f"--health-server-port={spec.health_port}",
        "--agent-identifiers=default-route=true",
        "--keepalive-time=30s",
        "--probe-interval=5s",
        "--sync-interval=5s",
        # The default cap of 10 s lets agents that cannot connect knock twice as often as the installer's do.
        "--sync-interval-cap=30s",
    ]
