"""The tunnel's objects: the server as a static pod, and the agents with namespace, Secret and DaemonSet.

Values that only the node knows are placeholders `${NAME}` in the YAML; the shell library fills them in with sed.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, BOOTSTRAP_ONLY, SERVER_NAME
from umbilical.bootstrap.spec import Shape, TunnelSpec
from umbilical.manifests.static_pod import UNPRIVILEGED

IMAGE: Final = "${KONNECTIVITY_IMAGE}"
NODE_IP: Final = "${BOOTSTRAP_NODE_IP}"
SERVER_FINGERPRINT: Final = "${SERVER_CERT_FINGERPRINT}"
AGENT_CERTIFICATE: Final = "${AGENT_CERT}"
AGENT_KEY: Final = "${AGENT_KEY}"
AUTHORITY: Final = "${CA_CERT}"
ALL: Final = (IMAGE, NODE_IP, SERVER_FINGERPRINT, AGENT_CERTIFICATE, AGENT_KEY, AUTHORITY)


PKI_MOUNT: Final = "/etc/konnectivity"


def container(
    spec: TunnelSpec,
    name: str,
    program: str,
    flags: Sequence[str],
    *,
    security: Mapping[str, Any] | None = None,
    mounts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the parts that server and agent share; `security` and `mounts` add to them."""
    return {
        "name": name,
        "image": spec.image or IMAGE,
        "imagePullPolicy": "IfNotPresent",
        # A user's image can have the program anywhere in its PATH.
        "command": [f"/usr/bin/{program}" if spec.image is None else program],
        "args": list(flags),
        # No readiness probe: an image may have upstream's server, whose /readyz checks only the first strategy and
        # returns 500 with destHost even if agents are connected.
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": spec.health_port},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
        },
        "resources": {"requests": {"cpu": spec.resources.cpu, "memory": spec.resources.memory}},
        "securityContext": {**UNPRIVILEGED, **(security or {})},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, {"name": "pki", "mountPath": PKI_MOUNT, "readOnly": True}],
    }


NAMESPACE: Final = "kube-system"
FINGERPRINT_ANNOTATION: Final = "umbilical.dev/server-certificate"


def server_pod(
    spec: TunnelSpec, pki_directory: str, certificates: Certificates | None = None, *, is_made_once: bool = False
) -> dict[str, Any]:
    """`pki_directory` is the server's own directory on the host, without the agents' key.

    `is_made_once`: the node creates the certificate before this pod can start, and never again.
    """
    known = certificates.server_fingerprint if certificates else SERVER_FINGERPRINT
    # The server reads its certificate once. The kubelet restarts a static pod when its manifest changes, so the
    # manifest contains the certificate's fingerprint.
    annotations = {} if is_made_once else {"annotations": {FINGERPRINT_ANNOTATION: known}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": SERVER_NAME,
            "namespace": NAMESPACE,
            "labels": {"app": SERVER_NAME},
            **annotations,
        },
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [_container(spec)],
            "volumes": [
                {"name": "socket", "hostPath": {"path": spec.socket_directory, "type": "DirectoryOrCreate"}},
                {"name": "pki", "hostPath": {"path": pki_directory, "type": "Directory"}},
            ],
        },
    }


def _container(spec: TunnelSpec) -> dict[str, Any]:
    security = {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    socket = {"name": "socket", "mountPath": spec.socket_directory}
    return container(spec, SERVER_NAME, "proxy-server", _server_flags(spec), security=security, mounts=[socket])


def _server_flags(spec: TunnelSpec) -> list[str]:
    return [
        "--logtostderr=true",
        f"--cluster-cert={PKI_MOUNT}/tls.crt",
        f"--cluster-key={PKI_MOUNT}/tls.key",
        f"--cluster-ca-cert={PKI_MOUNT}/ca.crt",
        f"--uds-name={spec.socket_on_host}",
        # A killed server leaves its socket file; the next one must not fail because of it.
        "--delete-existing-uds-file=true",
        # With a Unix socket the server rejects any other value, the default included.
        "--server-port=0",
        f"--agent-port={spec.agent_port}",
        f"--health-port={spec.health_port}",
        f"--admin-port={spec.admin_port}",
        f"--mode={spec.mode.value}",
        f"--proxy-strategies={','.join(spec.strategies)}",
        "--keepalive-time=30s",
        "--frontend-keepalive-time=30s",
    ]


# Without an SCC that assigns a user, the pod must name one that is not root; this is the usual "nonroot" of images.
USER_ID: Final = 65532
# Readable by owner root and by the pod's fsGroup, which SCCs also set.
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
    # The host's resolver: on the host network a pod must not depend on cluster DNS, which starts later.
    network = {"hostNetwork": True, "dnsPolicy": "Default"} if spec.host_network else {}
    return {
        **network,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        # The agent does not use the API, so it gets no token.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # On SIGTERM an agent waits until it is idle, while kube-apiserver keeps connections to webhooks open. The
        # namespace controller retries only after half of the pods' grace period, so it delays the deletion twice.
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": _pod_security(spec),
        "containers": [container(spec, AGENT_NAME, "proxy-agent", _agent_flags(spec))],
        "volumes": [{"name": "pki", "secret": {"secretName": AGENT_SECRET, "defaultMode": KEY_MODE}}],
    }


def _pod_security(spec: TunnelSpec) -> dict[str, Any]:
    context: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if spec.shape is not Shape.KUBERNETES and spec.owns_namespace:
        # kube-system is exempt from SCCs. Elsewhere restricted-v2 assigns user and fsGroup from the namespace's
        # range, and rejects pods with other values.
        return context
    return {**context, "runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}


def _agent_flags(spec: TunnelSpec) -> list[str]:
    host = NODE_IP if spec.node_ip is None else str(spec.node_ip)
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
        # As in the installer; with the default of 10 s, agents that cannot connect would retry more often.
        "--sync-interval-cap=30s",
    ]


def agent_secret(spec: TunnelSpec, certificates: Certificates | None = None) -> dict[str, Any]:
    key, value = BOOTSTRAP_ONLY
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": AGENT_SECRET,
            "namespace": spec.namespace,
            "labels": {"app": AGENT_NAME, key: value},
        },
        # Not kubernetes.io/tls: the installer's own Secret is Opaque and includes `ca.crt`.
        "type": "Opaque",
        "data": _data(certificates),
    }


def _data(certificates: Certificates | None) -> dict[str, str]:
    if certificates is None:
        return {
            "tls.crt": AGENT_CERTIFICATE,
            "tls.key": AGENT_KEY,
            "ca.crt": AUTHORITY,
        }
    files = {
        "tls.crt": certificates.agent.certificate,
        "tls.key": certificates.agent.key,
        "ca.crt": certificates.authority,
    }
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


_POD_SECURITY: Final = "pod-security.kubernetes.io"


def namespace(spec: TunnelSpec) -> dict[str, Any]:
    # Pod Security's levels baseline and restricted forbid the host network.
    level = "privileged" if spec.host_network else "restricted"
    key, value = BOOTSTRAP_ONLY
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": spec.namespace,
            "labels": {
                key: value,
                f"{_POD_SECURITY}/enforce": level,
                f"{_POD_SECURITY}/audit": level,
                f"{_POD_SECURITY}/warn": level,
                # Else OpenShift's controller overwrites these labels from the namespace's SCCs.
                "security.openshift.io/scc.podSecurityLabelSync": "false",
            },
            # A cluster-wide default node selector would keep agents off some nodes.
            "annotations": {"openshift.io/node-selector": ""},
        },
    }
