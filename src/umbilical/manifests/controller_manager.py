"""kube-controller-manager as a static pod: service accounts, endpoints, DaemonSets, signing for kubelets."""

from typing import Any, Final

from umbilical.manifests.control_plane_spec import (
    KUBECONFIG_DIRECTORY,
    PKI_DIRECTORY,
    ControlPlaneSpec,
    key_path,
    public_path,
)
from umbilical.manifests.static_pod import Component, HostFile, probe, static_pod

PROGRAM: Final = "kube-controller-manager"
PORT: Final = 10257
KUBECONFIG: Final = f"{KUBECONFIG_DIRECTORY}/controller-manager.kubeconfig"
_LOOPBACK: Final = "127.0.0.1"
# Lease, renewal and retry in seconds. Whoever cannot renew in time ends itself.
_LEASE: Final = (15, 12, 3)
# Where kube-apiserver is started anew in the middle of a story, on a machine that does much else.
_THROWAWAY_LEASE: Final = (60, 50, 1)


def controller_manager_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        Component(
            name=PROGRAM,
            image=spec.images.controller_manager,
            flags=(*access_flags(spec, KUBECONFIG, PORT), *_keys(), *_pace(spec), *_networks(spec)),
            files=(HostFile("kubeconfig", KUBECONFIG), HostFile("pki", PKI_DIRECTORY, "Directory")),
            probes=loopback_probes(PORT),
            cpu="200m",
            memory="256Mi",
            grace_seconds=5 if spec.is_throwaway else 30,
        )
    )


def access_flags(spec: ControlPlaneSpec, kubeconfig: str, port: int) -> tuple[str, ...]:
    """Return what controller-manager and scheduler have alike: how they ask the API, and who may ask them."""
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # The API is ready a moment before the object is there that says who may ask. Without this the program would
        # end, and come back after a kubelet's back-off; nobody but a probe asks here.
        "--authentication-tolerate-lookup-failure=true",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={port}",
        # The masters' own take over from the bootstrap node's, one at a time.
        "--leader-elect=true",
        *_lease_flags(_THROWAWAY_LEASE if spec.is_throwaway else _LEASE),
    )


def _lease_flags(lease: tuple[int, int, int]) -> tuple[str, ...]:
    names = ("lease-duration", "renew-deadline", "retry-period")
    return tuple(f"--leader-elect-{name}={seconds}s" for name, seconds in zip(names, lease, strict=True))


def loopback_probes(port: int) -> dict[str, dict[str, Any]]:
    return {
        "startupProbe": _probe(port, failures=24),
        "livenessProbe": _probe(port, failures=8),
    }


def _probe(port: int, *, failures: int) -> dict[str, Any]:
    return probe("HTTPS", _LOOPBACK, port, "/healthz", period=5, failures=failures, timeout=10)


def _keys() -> list[str]:
    authority = "kubernetes-ca"
    return [
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={key_path('service-account')}",
        f"--root-ca-file={public_path(authority)}",
        f"--cluster-signing-cert-file={public_path(authority)}",
        f"--cluster-signing-key-file={key_path(authority)}",
    ]


def _pace(spec: ControlPlaneSpec) -> list[str]:
    """Let forty controllers get their accounts and tokens at once: at the usual twenty requests a second they begin
    to work seven seconds after they may, with this after two (two cores, 2026-11-15)."""
    return ["--kube-api-qps=200", "--kube-api-burst=400"] if spec.is_throwaway else []


def _networks(spec: ControlPlaneSpec) -> list[str]:
    networks = [
        f"--cluster-cidr={','.join(map(str, spec.pod_networks))}",
        f"--service-cluster-ip-range={','.join(map(str, spec.service_networks))}",
    ]
    if not spec.node_prefixes:
        return [*networks, "--allocate-node-cidrs=false"]
    return [*networks, "--allocate-node-cidrs=true", *_masks(spec)]


def _masks(spec: ControlPlaneSpec) -> list[str]:
    pairs = zip(spec.pod_networks, spec.node_prefixes, strict=True)
    if len(spec.pod_networks) == 1:
        return [f"--node-cidr-mask-size={spec.node_prefixes[0]}"]
    return [f"--node-cidr-mask-size-ipv{network.version}={prefix}" for network, prefix in pairs]
