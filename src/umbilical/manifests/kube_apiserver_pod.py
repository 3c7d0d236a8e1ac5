"""kube-apiserver as a static pod of our own making; `kube_apiserver` adds the tunnel to it as to anybody's."""

from typing import Any, Final

from umbilical.manifests.control_plane_spec import PKI_DIRECTORY, ControlPlaneSpec, key_path, public_path, row
from umbilical.manifests.static_pod import Component, HostFile, probe, static_pod

PROGRAM: Final = "kube-apiserver"
ISSUER: Final = "https://kubernetes.default.svc"
# OpenShift's figures: load balancers need the delay to notice, requests the rest to end.
SHUTDOWN_DELAY_SECONDS: Final = 70
GRACE_SECONDS: Final = 135
# Watches would keep it for the whole time, whatever that is.
_THROWAWAY_GRACE_SECONDS: Final = 2


def kube_apiserver_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        Component(
            name=PROGRAM,
            image=spec.images.kube_apiserver,
            flags=(*_listening(spec), *_storage(spec), *_identities(), *_admission(spec), *_reaching_out()),
            files=(HostFile("pki", PKI_DIRECTORY, "Directory"),),
            probes={
                "startupProbe": _probe(spec, "/livez", period=5, failures=30),
                # etcd's trouble is not mended by a restart of this one.
                "livenessProbe": _probe(spec, "/livez?exclude=etcd", period=10, failures=3),
                "readinessProbe": _probe(spec, "/readyz", period=1, failures=3),
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
        # Each counts itself among the endpoints of `kubernetes` while it lives: the bootstrap one goes by itself.
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
        # Probes of kubelets and load balancers ask /livez and /readyz as nobody.
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
    """Return the flags of kubelets and aggregated APIs: what a tunnel carries."""
    return [
        f"--kubelet-certificate-authority={public_path('kubernetes-ca')}",
        f"--kubelet-client-certificate={public_path('apiserver-kubelet-client')}",
        f"--kubelet-client-key={key_path('apiserver-kubelet-client')}",
        # Names of nodes are in no DNS that a bootstrap node could ask.
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={public_path('front-proxy-ca')}",
        # An aggregated API believes these headers from holders of this name alone.
        f"--requestheader-allowed-names={row('front-proxy-client').common_name}",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={public_path('front-proxy-client')}",
        f"--proxy-client-key-file={key_path('front-proxy-client')}",
        # Endpoints are dialled, not cluster IPs, which no kube-proxy of a bootstrap node would lead anywhere.
        "--enable-aggregator-routing=true",
    ]


def _probe(spec: ControlPlaneSpec, path: str, *, period: int, failures: int) -> dict[str, Any]:
    return probe("HTTPS", str(spec.node_ip), spec.api_port, path, period=period, failures=failures, timeout=10)
