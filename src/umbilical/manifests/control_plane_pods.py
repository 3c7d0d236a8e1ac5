"""The static pods of a control plane: kube-apiserver, kube-controller-manager, kube-scheduler, and etcd with one
member. Every connection needs a certificate. `bootstrap.render.kube_apiserver` adds the tunnel.
"""

from typing import Any, Final

from umbilical.manifests.control_plane_spec import (
    ETCD_CLIENT_PORT,
    ETCD_DATA,
    ETCD_PEER_PORT,
    KUBECONFIG_DIRECTORY,
    PKI_DIRECTORY,
    ControlPlaneSpec,
    key_path,
    public_path,
    row,
    url,
)
from umbilical.manifests.static_pod import HostFile, PodComponent, probe, static_pod

KUBE_APISERVER: Final = "kube-apiserver"
ISSUER: Final = "https://kubernetes.default.svc"
# OpenShift's values: load balancers need the delay to notice, requests the rest to finish.
SHUTDOWN_DELAY_SECONDS: Final = 70
GRACE_SECONDS: Final = 135
# Watches would keep it running for the whole grace period.
_THROWAWAY_GRACE_SECONDS: Final = 2


def kube_apiserver_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        PodComponent(
            name=KUBE_APISERVER,
            image=spec.images.kube_apiserver,
            flags=(*_listening(spec), *_storage(spec), *_identities(), *_admission(spec), *_reaching_out()),
            files=(HostFile("pki", PKI_DIRECTORY, "Directory"),),
            probes={
                "startupProbe": _api_probe(spec, "/livez", period=5, failures=30),
                # Restarting kube-apiserver does not fix etcd.
                "livenessProbe": _api_probe(spec, "/livez?exclude=etcd", period=10, failures=3),
                "readinessProbe": _api_probe(spec, "/readyz", period=1, failures=3),
            },
            cpu="250m",
            memory="512Mi",
            grace_seconds=_THROWAWAY_GRACE_SECONDS if spec.is_throwaway else GRACE_SECONDS,
        )
    )


def _listening(spec: ControlPlaneSpec) -> list[str]:
    return [
        f"--advertise-address={spec.node_ip}",
        f"--bind-address={spec.every_address}",
        f"--secure-port={spec.api_port}",
        f"--tls-cert-file={public_path('apiserver')}",
        f"--tls-private-key-file={key_path('apiserver')}",
        f"--shutdown-delay-duration={0 if spec.is_throwaway else SHUTDOWN_DELAY_SECONDS}s",
        # Each instance removes itself from the endpoints of `kubernetes` when it ends, the bootstrap one too.
        "--endpoint-reconciler-type=lease",
    ]


def _storage(spec: ControlPlaneSpec) -> list[str]:
    return [
        f"--etcd-servers={','.join(spec.etcd_servers)}",
        f"--etcd-cafile={public_path('etcd-ca')}",
        f"--etcd-certfile={public_path('etcd-client')}",
        f"--etcd-keyfile={key_path('etcd-client')}",
    ]


def _identities() -> list[str]:
    return [
        f"--client-ca-file={public_path('kubernetes-ca')}",
        # Kubelets and load balancers probe /livez and /readyz without credentials.
        "--anonymous-auth=true",
        "--authorization-mode=Node,RBAC",
        "--enable-bootstrap-token-auth=true",
        f"--service-account-issuer={ISSUER}",
        f"--api-audiences={ISSUER}",
        f"--service-account-key-file={public_path('service-account')}",
        f"--service-account-signing-key-file={key_path('service-account')}",
    ]


def _admission(spec: ControlPlaneSpec) -> list[str]:
    return [
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={','.join(map(str, spec.service_networks))}",
    ]


def _reaching_out() -> list[str]:
    """Return the flags for kubelets and aggregated APIs, which a tunnel carries."""
    return [
        f"--kubelet-certificate-authority={public_path('kubernetes-ca')}",
        f"--kubelet-client-certificate={public_path('apiserver-kubelet-client')}",
        f"--kubelet-client-key={key_path('apiserver-kubelet-client')}",
        # A bootstrap node cannot resolve node names.
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={public_path('front-proxy-ca')}",
        # An aggregated API trusts these headers only from this common name.
        f"--requestheader-allowed-names={row('front-proxy-client').common_name}",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={public_path('front-proxy-client')}",
        f"--proxy-client-key-file={key_path('front-proxy-client')}",
        # Dial endpoints: a bootstrap node has no kube-proxy for cluster IPs.
        "--enable-aggregator-routing=true",
    ]


def _api_probe(spec: ControlPlaneSpec, path: str, *, period: int, failures: int) -> dict[str, Any]:
    return probe("HTTPS", str(spec.node_ip), spec.api_port, path, period=period, failures=failures, timeout=10)


CONTROLLER_MANAGER: Final = "kube-controller-manager"
CONTROLLER_MANAGER_PORT: Final = 10257
CONTROLLER_MANAGER_KUBECONFIG: Final = f"{KUBECONFIG_DIRECTORY}/controller-manager.kubeconfig"
_LOOPBACK: Final = "127.0.0.1"
# Lease, renewal and retry in seconds. A leader that cannot renew in time exits.
_LEASE: Final = (15, 12, 3)
# For labs that restart kube-apiserver in the middle of a scenario on a busy machine.
_THROWAWAY_LEASE: Final = (60, 50, 1)


def controller_manager_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        PodComponent(
            name=CONTROLLER_MANAGER,
            image=spec.images.controller_manager,
            flags=(
                *access_flags(spec, CONTROLLER_MANAGER_KUBECONFIG, CONTROLLER_MANAGER_PORT),
                *_keys(),
                *_pace(spec),
                *_networks(spec),
            ),
            files=(HostFile("kubeconfig", CONTROLLER_MANAGER_KUBECONFIG), HostFile("pki", PKI_DIRECTORY, "Directory")),
            probes=loopback_probes(CONTROLLER_MANAGER_PORT),
            cpu="200m",
            memory="256Mi",
            grace_seconds=5 if spec.is_throwaway else 30,
        )
    )


def access_flags(spec: ControlPlaneSpec, kubeconfig: str, port: int) -> tuple[str, ...]:
    """Return the flags that controller-manager and scheduler share: access to the API, and to themselves."""
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # The API is ready shortly before its authentication ConfigMap exists. Without this flag the program would exit
        # and restart after the kubelet's back-off. Only probes use this port.
        "--authentication-tolerate-lookup-failure=true",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={port}",
        # The instances on the masters take over from the one on the bootstrap node.
        "--leader-elect=true",
        *_lease_flags(_THROWAWAY_LEASE if spec.is_throwaway else _LEASE),
    )


def _lease_flags(lease: tuple[int, int, int]) -> tuple[str, ...]:
    names = ("lease-duration", "renew-deadline", "retry-period")
    return tuple(f"--leader-elect-{name}={seconds}s" for name, seconds in zip(names, lease, strict=True))


def loopback_probes(port: int) -> dict[str, dict[str, Any]]:
    return {
        "startupProbe": _loopback_probe(port, failures=24),
        "livenessProbe": _loopback_probe(port, failures=8),
    }


def _loopback_probe(port: int, *, failures: int) -> dict[str, Any]:
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
    """Let forty controllers get their accounts and tokens at once: at the default 20 requests/s they start to work
    after seven seconds, with this after two (two cores, 2026-11-15)."""
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


SCHEDULER: Final = "kube-scheduler"
SCHEDULER_PORT: Final = 10259
SCHEDULER_KUBECONFIG: Final = f"{KUBECONFIG_DIRECTORY}/scheduler.kubeconfig"


def scheduler_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        PodComponent(
            name=SCHEDULER,
            image=spec.images.scheduler,
            flags=access_flags(spec, SCHEDULER_KUBECONFIG, SCHEDULER_PORT),
            files=(HostFile("kubeconfig", SCHEDULER_KUBECONFIG),),
            probes=loopback_probes(SCHEDULER_PORT),
            cpu="100m",
            memory="128Mi",
            grace_seconds=5 if spec.is_throwaway else 30,
        )
    )


METRICS_PORT: Final = 2381

QUOTA_BYTES: Final = 8 << 30
"""The maximum that etcd recommends, and OpenShift's value."""


def etcd_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        PodComponent(
            name="etcd",
            image=spec.images.etcd,
            flags=tuple(_etcd_flags(spec)),
            files=(
                HostFile("etcd-data", ETCD_DATA, "DirectoryOrCreate", is_writable=True),
                HostFile("pki", f"{PKI_DIRECTORY}/etcd", "Directory"),
            ),
            probes={
                "startupProbe": _etcd_probe("/readyz", failures=24),
                "livenessProbe": _etcd_probe("/livez", failures=8),
                "readinessProbe": _etcd_probe("/readyz", failures=3),
            },
            cpu="100m",
            memory="100Mi",
            grace_seconds=5 if spec.is_throwaway else 30,
        )
    )


def member_name(spec: ControlPlaneSpec) -> str:
    """OpenShift's etcd operator looks for the bootstrap member by the name `etcd-bootstrap`."""
    return f"etcd-{spec.node_name}"


def _etcd_flags(spec: ControlPlaneSpec) -> list[str]:
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
        # Without TLS, on loopback only: kubelet probes have no client certificate.
        f"--listen-metrics-urls=http://{_LOOPBACK}:{METRICS_PORT}",
    ]
    return [*flags, "--unsafe-no-fsync"] if spec.is_throwaway else flags


def _etcd_probe(path: str, *, failures: int) -> dict[str, Any]:
    return probe("HTTP", _LOOPBACK, METRICS_PORT, path, period=5, failures=failures, timeout=10)
