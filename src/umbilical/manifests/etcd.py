"""etcd as a static pod: one member that trusts nobody without a certificate of its own authority."""

from typing import Any, Final

from umbilical.manifests.control_plane_spec import (
    ETCD_CLIENT_PORT,
    ETCD_DATA,
    ETCD_PEER_PORT,
    PKI_DIRECTORY,
    ControlPlaneSpec,
    key_path,
    public_path,
    url,
)
from umbilical.manifests.static_pod import Component, HostFile, probe, static_pod

METRICS_PORT: Final = 2381
_LOOPBACK: Final = "127.0.0.1"
QUOTA_BYTES: Final = 8 << 30
"""The largest that etcd calls normal, and what OpenShift gives it."""


def etcd_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        Component(
            name="etcd",
            image=spec.images.etcd,
            flags=tuple(_flags(spec)),
            files=(
                HostFile("etcd-data", ETCD_DATA, "DirectoryOrCreate", is_writable=True),
                HostFile("pki", f"{PKI_DIRECTORY}/etcd", "Directory"),
            ),
            probes={
                "startupProbe": _probe("/readyz", failures=24),
                "livenessProbe": _probe("/livez", failures=8),
                "readinessProbe": _probe("/readyz", failures=3),
            },
            cpu="100m",
            memory="100Mi",
            grace_seconds=5 if spec.is_throwaway else 30,
        )
    )


def member_name(spec: ControlPlaneSpec) -> str:
    """OpenShift's etcd operator looks for the bootstrap member by the name `etcd-bootstrap`."""
    return f"etcd-{spec.node_name}"


def _flags(spec: ControlPlaneSpec) -> list[str]:
    client, peer = url(spec.node_ip, ETCD_CLIENT_PORT), url(spec.node_ip, ETCD_PEER_PORT)
    flags = [
        f"--name={member_name(spec)}",
        f"--data-dir={ETCD_DATA}",
        f"--listen-client-urls={url(spec.every_address, ETCD_CLIENT_PORT)}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={url(spec.every_address, ETCD_PEER_PORT)}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={member_name(spec)}={peer}",
        "--initial-cluster-state=new",
        f"--cert-file={public_path('etcd-server')}",
        f"--key-file={key_path('etcd-server')}",
        "--client-cert-auth=true",
        f"--trusted-ca-file={public_path('etcd-ca')}",
        f"--peer-cert-file={public_path('etcd-peer')}",
        f"--peer-key-file={key_path('etcd-peer')}",
        "--peer-client-cert-auth=true",
        f"--peer-trusted-ca-file={public_path('etcd-ca')}",
        f"--quota-backend-bytes={QUOTA_BYTES}",
        # Without TLS and on loopback only: a kubelet's probe has no client certificate to show.
        f"--listen-metrics-urls=http://{_LOOPBACK}:{METRICS_PORT}",
    ]
    return [*flags, "--unsafe-no-fsync"] if spec.is_throwaway else flags


def _probe(path: str, *, failures: int) -> dict[str, Any]:
    return probe("HTTP", _LOOPBACK, METRICS_PORT, path, period=5, failures=failures, timeout=10)
