"""The server: a static pod beside the bootstrap kube-apiserver, which never reaches an API.

Root without a single capability: as owner it may write its socket into a directory of root's, and read keys of
mode 0600; it can override nobody else's permissions. SELinux needs no word: CRI-O leaves pods in the host's
network unconfined, this one and kube-apiserver's alike.
"""

from typing import Any, Final

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.names import SERVER_NAME
from umbilical.bootstrap.render import placeholders
from umbilical.bootstrap.render.container import PKI_MOUNT, container
from umbilical.bootstrap.spec import TunnelSpec

NAMESPACE: Final = "kube-system"
FINGERPRINT_ANNOTATION: Final = "umbilical.dev/server-certificate"


def server_pod(
    spec: TunnelSpec, pki_directory: str, certificates: Certificates | None = None, *, is_made_once: bool = False
) -> dict[str, Any]:
    """`pki_directory` is the server's own folder on the host: nothing of the agents' is mounted.

    `is_made_once` says that its certificate is made on the node before this pod can start, and never anew.
    """
    known = certificates.server_fingerprint if certificates else placeholders.SERVER_FINGERPRINT
    # The server reads its certificate once. A kubelet restarts a static pod when its manifest changes, so a new
    # certificate must show in it.
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
    return container(spec, SERVER_NAME, "proxy-server", _flags(spec), security=security, mounts=[socket])


def _flags(spec: TunnelSpec) -> list[str]:
    return [
        "--logtostderr=true",
        f"--cluster-cert={PKI_MOUNT}/tls.crt",
        f"--cluster-key={PKI_MOUNT}/tls.key",
        f"--cluster-ca-cert={PKI_MOUNT}/ca.crt",
        f"--uds-name={spec.socket_on_host}",
        # A server that was killed leaves its socket file; the next one must not fail at it.
        "--delete-existing-uds-file=true",
        # Beside a Unix socket any other port is refused, the default one included.
        "--server-port=0",
        f"--agent-port={spec.agent_port}",
        f"--health-port={spec.health_port}",
        f"--admin-port={spec.admin_port}",
        f"--mode={spec.mode.value}",
        f"--proxy-strategies={','.join(spec.strategies)}",
        "--keepalive-time=30s",
        "--frontend-keepalive-time=30s",
    ]
