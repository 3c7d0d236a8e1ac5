"""The server's container beside kube-apiserver: HyperShift's flags, probes and requests, with what was wrong mended."""

from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import UNPRIVILEGED, config_map_volume, mount, probe, requests, secret_volume
from umbilical.hosted.objects.spec import HostedSpec, ServerCount, TlsProfile
from umbilical.manifests.objects import Object

PROGRAM: Final = "/usr/bin/proxy-server"
# As long as kube-apiserver goes on serving after SIGTERM (shutdown-delay-duration): until then it needs its server.
STOP_DELAY_SECONDS: Final = 70
# What is left of the pod's grace time, but for a few seconds.
DRAIN_SECONDS: Final = 60
GRACE_SECONDS: Final = 135
# An agent gives up its own dial after 5 s; whoever has not answered after this hangs.
DIAL_SECONDS: Final = 15
LEASE_LABEL: Final = "k8s-app=konnectivity-server"
KUBECONFIG_DIRECTORY: Final = "/etc/konnectivity/kubeconfig"
KUBECONFIG_KEY: Final = "kubeconfig"
TMP_VOLUME: Final = "konnectivity-tmp"
_MIN_VERSIONS: Final = {TlsProfile.INTERMEDIATE: "VersionTLS12", TlsProfile.MODERN: "VersionTLS13"}
_INTERMEDIATE_SUITES: Final = tuple(
    f"TLS_ECDHE_{signer}_WITH_{cipher}"
    for cipher in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")
    for signer in ("ECDSA", "RSA")
)


def server_container(spec: HostedSpec) -> Object:
    return {
        "name": names.SERVER,
        "image": spec.images.server,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": server_flags(spec),
        # Not /readyz: it asks for an agent of the first strategy, which is the control-plane agent, which needs
        # kube-apiserver, which would not be ready before it.
        "readinessProbe": probe("/healthz", names.HEALTH_PORT, periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "livenessProbe": probe(
            "/healthz",
            names.HEALTH_PORT,
            initialDelaySeconds=120,
            periodSeconds=60,
            timeoutSeconds=30,
            failureThreshold=3,
        ),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", f"sleep {STOP_DELAY_SECONDS}"]}}},
        "resources": requests("10m", "50Mi"),
        "securityContext": dict(UNPRIVILEGED),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(spec),
    }


def server_flags(spec: HostedSpec) -> list[str]:
    cluster, server, ca = names.SERVER_CLUSTER_DIRECTORY, names.SERVER_SERVER_DIRECTORY, names.SERVER_CA_DIRECTORY
    return [
        "--logtostderr=true",
        "--log-file-max-size=0",
        f"--cluster-cert={cluster}/tls.crt",
        f"--cluster-key={cluster}/tls.key",
        # Never without it: then anybody who reaches the port is an agent (CVE-2026-16242). And never the clients' one:
        # agents' keys lie in the hosted cluster, where the tenant reads them.
        f"--cluster-ca-cert={ca}/{names.AGENT_CA_KEY}",
        f"--server-cert={server}/tls.crt",
        f"--server-key={server}/tls.key",
        f"--server-ca-cert={ca}/{names.CLIENT_CA_KEY}",
        f"--server-port={names.FRONTEND_PORT}",
        f"--agent-port={names.AGENT_PORT}",
        f"--health-port={names.HEALTH_PORT}",
        f"--admin-port={names.ADMIN_PORT}",
        "--mode=http-connect",
        "--proxy-strategies=destHost,defaultRoute",
        "--keepalive-time=30s",
        "--frontend-keepalive-time=30s",
        # HyperShift's server stops at once; tunnels that are open then break in the middle.
        f"--graceful-shutdown-timeout={DRAIN_SECONDS}s",
        f"--backend-dial-timeout={DIAL_SECONDS}s",
        # Beside leases it stays as what agents without a way to the hosted API know.
        f"--server-count={spec.replicas}",
        *_tls_flags(spec.tls_profile),
        *(_lease_flags() if spec.server_count is ServerCount.LEASES else ()),
        *(_identity_flags() if spec.is_ours else ()),
    ]


def _tls_flags(profile: TlsProfile) -> list[str]:
    version = f"--tls-min-version={_MIN_VERSIONS[profile]}"
    # TLS 1.3 has no suites to choose.
    return [version] if profile is TlsProfile.MODERN else [version, f"--cipher-suites={','.join(_INTERMEDIATE_SUITES)}"]


def _lease_flags() -> list[str]:
    return [
        "--enable-lease-controller=true",
        f"--lease-namespace={names.HOSTED_NAMESPACE}",
        f"--lease-label={LEASE_LABEL}",
        f"--kubeconfig={KUBECONFIG_DIRECTORY}/{KUBECONFIG_KEY}",
    ]


def _identity_flags() -> list[str]:
    """Upstream's server knows neither: there an agent's word is all that counts."""
    return [
        f"--agent-identities={names.IDENTITIES_DIRECTORY}/{names.IDENTITIES_KEY}",
        f"--frontend-identities=CN={names.CN_CLIENT}",
    ]


def _mounts(spec: HostedSpec) -> list[Object]:
    return [
        mount("cluster-certs", names.SERVER_CLUSTER_DIRECTORY),
        mount("server-certs", names.SERVER_SERVER_DIRECTORY),
        mount("konnectivity-ca", names.SERVER_CA_DIRECTORY),
        *([mount("agent-identities", names.IDENTITIES_DIRECTORY)] if spec.is_ours else []),
        *([mount("lease-kubeconfig", KUBECONFIG_DIRECTORY)] if spec.server_count is ServerCount.LEASES else []),
        {"name": TMP_VOLUME, "mountPath": "/tmp"},
    ]


def client_mounts() -> list[Object]:
    """What kube-apiserver's own container needs to ask the server for tunnels."""
    return [
        mount("egress-selector-config", names.EGRESS_DIRECTORY),
        mount("konnectivity-client", names.CLIENT_PAIR_DIRECTORY),
        mount("konnectivity-ca", names.CLIENT_CA_DIRECTORY),
    ]


def pod_volumes(spec: HostedSpec) -> list[Object]:
    """All volumes of both containers, from Secrets and ConfigMaps."""
    secrets = {
        "cluster-certs": names.SECRET_CLUSTER,
        "server-certs": names.SECRET_SERVER,
        "konnectivity-client": names.SECRET_CLIENT,
    }
    maps = {"konnectivity-ca": names.CA_BUNDLE, "egress-selector-config": names.EGRESS_CONFIG_MAP}
    if spec.is_ours:
        maps["agent-identities"] = names.IDENTITIES_CONFIG_MAP
    if spec.server_count is ServerCount.LEASES:
        secrets["lease-kubeconfig"] = spec.leases.kubeconfig_secret
    return [
        *(secret_volume(name, of) for name, of in secrets.items()),
        *(config_map_volume(name, of) for name, of in maps.items()),
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]
