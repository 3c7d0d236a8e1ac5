"""kube-apiserver on the bootstrap node, and in the kubernetes profile on every master with the same command line."""

from typing import Any, Final

from umbilical.bootstrap.render.kube_apiserver import EGRESS_FLAG
from umbilical.hardway.artifacts.static_pods.placement import (
    VERBOSITY,
    FlagRow,
    PodPlacement,
    ProgramFlags,
    bundle,
    by_profile,
    certificate,
    key,
    on_openshift,
    public_key,
)
from umbilical.hardway.artifacts.tunnel import EGRESS_IN_POD, config_files
from umbilical.hardway.config.cluster import API_PORT
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.control_plane_pods import GRACE_SECONDS, ISSUER, SHUTDOWN_DELAY_SECONDS
from umbilical.manifests.control_plane_spec import ETCD_CLIENT_PORT
from umbilical.manifests.static_pod import PodComponent, PodMetadata, probe, static_pod
from umbilical.pki.certificate import read_certificates

PROGRAM: Final = "kube-apiserver"
ETCD_PREFIX: Final = "kubernetes.io"
# For the kubernetes profile: our load balancer notices a change within five seconds.
_QUICK_SHUTDOWN_DELAY_SECONDS: Final = 10
_QUICK_GRACE_SECONDS: Final = 30
_SERVING: Final = "kube-apiserver-service-network-server"
_PROXY_CLIENT: Final = "aggregator-client"


def _sni(row_id: str, *names: str) -> str:
    return f"{certificate(row_id)},{key(row_id)}:{','.join(names)}"


def _proxy_client_name(placement: PodPlacement) -> str:
    return read_certificates(placement.inputs.certificates[_PROXY_CLIENT].certificate)[0].common_name


_LISTENING: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "advertise-address",
        lambda placement: str(placement.node.address),
        "address that it writes to the endpoints of the Service `kubernetes`, for pods",
        "it uses the address of the default route, which may belong to another network",
    ),
    FlagRow(
        "bind-address",
        lambda placement: placement.every_address,
        "listen on all addresses: the load balancer uses the node's address, programs on the node use loopback",
        "with one address, clients of the others get connection refused",
    ),
    FlagRow(
        "secure-port",
        str(API_PORT),
        "port of the API, as in kubeconfigs, load balancer and firewall",
        "connection refused on 6443",
    ),
    FlagRow(
        "tls-cert-file",
        certificate(_SERVING),
        "default serving certificate, for clients that dial an address and so send no SNI",
        "x509: certificate is valid for ..., not 172.30.0.1 in every pod",
    ),
    FlagRow("tls-private-key-file", key(_SERVING), "key of --tls-cert-file", "it exits: no such file or directory"),
    FlagRow(
        "tls-sni-cert-key",
        _sni("kube-apiserver-localhost-server", "localhost", "127.0.0.1"),
        "serving certificate for clients on the same node: controller-manager, scheduler, the version operator",
        "x509: certificate is valid for kubernetes, ..., not localhost",
    ),
    FlagRow(
        "tls-sni-cert-key",
        lambda placement: _sni("kube-apiserver-lb-server", placement.cluster.api_name),
        "serving certificate for clients outside the cluster",
        "kubectl: x509: certificate is valid for ..., not api.<domain>",
    ),
    FlagRow(
        "tls-sni-cert-key",
        lambda placement: _sni("kube-apiserver-internal-lb-server", placement.cluster.internal_api_name),
        "serving certificate for kubelets and kube-proxy",
        "nodes never register: x509: certificate is valid for ..., not api-int.<domain>",
    ),
    FlagRow(
        "shutdown-delay-duration",
        by_profile(openshift=f"{SHUTDOWN_DELAY_SECONDS}s", kubernetes=f"{_QUICK_SHUTDOWN_DELAY_SECONDS}s"),
        "how long it still serves after SIGTERM while /readyz fails, so that load balancers notice. OpenShift's value "
        "fits the load balancers of all clouds; the kubernetes profile's fits ours, which checks every two seconds",
        "requests fail whenever it stops, especially at the pivot",
    ),
    FlagRow(
        "endpoint-reconciler-type",
        "lease",
        "each API server is an endpoint of `kubernetes` while it renews its lease, so the bootstrap node's disappears "
        "when it stops",
        "pods still dial an API server that has stopped",
    ),
)

_STORAGE: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "etcd-servers",
        f"https://localhost:{ETCD_CLIENT_PORT}",
        "the etcd member on the same node, which stops together with this API server",
        "with the bootstrap node's address, masters lose their etcd at the pivot",
    ),
    FlagRow("etcd-cafile", bundle(Bundle.ETCD_CA), "CA of etcd", "x509: certificate signed by unknown authority"),
    FlagRow(
        "etcd-certfile",
        certificate("etcd-client"),
        "client certificate for etcd",
        "remote error: tls: certificate required",
    ),
    FlagRow("etcd-keyfile", key("etcd-client"), "key of --etcd-certfile", "it exits: no such file or directory"),
    FlagRow(
        "etcd-prefix",
        ETCD_PREFIX,
        "prefix of all keys in etcd; OpenShift's operators start the masters' API servers with this one",
        "with the default /registry the masters see an empty cluster after the pivot, as if all data were lost",
        on_openshift,
    ),
)

_IDENTITIES: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "client-ca-file",
        bundle(Bundle.CLIENT_CA),
        "CAs of accepted client certificates: administrators, kubelets, new nodes, the control plane",
        "clients of a missing CA get Unauthorized",
    ),
    FlagRow(
        "anonymous-auth",
        "true",
        "kubelet and load balancer probe /livez and /readyz anonymously; RBAC allows anonymous users little else",
        "probes get 401, the kubelet restarts it, the load balancer marks it down",
    ),
    FlagRow(
        "authorization-mode",
        "Node,RBAC",
        "kubelets may read what their pods need; everyone else has the rights of their roles",
        "the default is AlwaysAllow: every user may do everything",
    ),
    FlagRow(
        "service-account-issuer",
        ISSUER,
        "issuer in every token; it must be the same on all API servers, before and after the pivot",
        "one API server rejects tokens of another",
    ),
    FlagRow(
        "api-audiences",
        ISSUER,
        "audience of tokens without an explicit one, such as those of pods",
        "Unauthorized: token audiences is invalid for the target audiences",
    ),
    FlagRow(
        "service-account-key-file",
        public_key("service-account"),
        "public key for tokens that controller-manager signed (long-lived ones in Secrets)",
        "clients with such tokens get Unauthorized",
    ),
    FlagRow(
        "service-account-key-file",
        public_key("bound-service-account-signing-key"),
        "public key for tokens that an API server signed (those in pods)",
        "every pod gets Unauthorized",
    ),
    FlagRow(
        "service-account-signing-key-file",
        key("bound-service-account-signing-key"),
        "key that signs tokens for pods; a separate pair, which OpenShift's operator takes over",
        "pods get no token and do not start",
    ),
)

_ADMISSION: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "enable-admission-plugins",
        "NodeRestriction",
        "a kubelet may change only its own Node and its own pods. (Without SCC admission: in OpenShift, pods created "
        "through this API server have no openshift.io/scc annotation; the masters' API servers have that admission)",
        "one stolen kubelet certificate can change all nodes",
    ),
    FlagRow(
        "allow-privileged",
        "true",
        "allow the privileged pods of the network and of the control plane",
        "the API rejects them: privileged containers are disallowed",
    ),
    FlagRow(
        "service-cluster-ip-range",
        lambda placement: str(placement.cluster.networks.services),
        "network of cluster IPs; the first one is the Service `kubernetes`, and is in the serving certificate",
        "Services get addresses that kube-proxy and certificates do not contain",
    ),
)

_REACHING_OUT: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "kubelet-certificate-authority",
        bundle(Bundle.KUBELET_CA),
        "CA of the kubelets' serving certificates, which controller-manager signs",
        "kubelets are not verified; with the wrong bundle logs and exec fail",
    ),
    FlagRow(
        "kubelet-client-certificate",
        certificate("kube-apiserver-to-kubelet-client"),
        "its client certificate for kubelets; a role must allow nodes/proxy for this user",
        "kubectl logs: Unauthorized; without the role: Forbidden",
    ),
    FlagRow(
        "kubelet-client-key",
        key("kube-apiserver-to-kubelet-client"),
        "key of --kubelet-client-certificate",
        "it exits: no such file or directory",
    ),
    FlagRow(
        "kubelet-preferred-address-types",
        "InternalIP",
        "connect to nodes by address, because the cluster's DNS may not run yet",
        "kubectl logs: dial tcp: lookup master-0...: no such host",
    ),
    FlagRow(
        "requestheader-client-ca-file",
        bundle(Bundle.AGGREGATOR_CA),
        "CA of front proxies; a separate one, or any client could impersonate any user",
        "aggregated API servers accept no user from kube-apiserver",
    ),
    FlagRow(
        "requestheader-allowed-names",
        _proxy_client_name,
        "common name of --proxy-client-cert-file; user headers are accepted only from this client",
        "every request to an aggregated API gets Unauthorized",
    ),
    FlagRow(
        "requestheader-username-headers",
        "X-Remote-User",
        "header in which a front proxy passes the user name",
        "aggregated APIs see every user as system:anonymous",
    ),
    FlagRow("requestheader-group-headers", "X-Remote-Group", "header with the user's groups", "users have no groups"),
    FlagRow("requestheader-extra-headers-prefix", "X-Remote-Extra-", "prefix of extra headers", "scopes are lost"),
    FlagRow(
        "proxy-client-cert-file",
        certificate(_PROXY_CLIENT),
        "its client certificate for aggregated APIs and for webhooks that require one",
        "aggregated APIs reject its requests",
    ),
    FlagRow(
        "proxy-client-key-file",
        key(_PROXY_CLIENT),
        "key of --proxy-client-cert-file",
        "it exits: no such file or directory",
    ),
    FlagRow(
        "enable-aggregator-routing",
        "true",
        "dial endpoints instead of cluster IPs, which do not work on a node without kube-proxy",
        "aggregated APIs time out on the bootstrap node",
    ),
    FlagRow(
        EGRESS_FLAG,
        EGRESS_IN_POD,
        "the bootstrap node has no route to pods, so connections into the cluster use the tunnel. Masters have routes "
        "and must not have this flag",
        "webhooks and aggregated APIs in pods time out until the pivot: context deadline exceeded",
        lambda placement: placement.has_tunnel,
    ),
    VERBOSITY,
)

KUBE_APISERVER: Final = ProgramFlags(
    PROGRAM,
    (*_LISTENING, *_STORAGE, *_IDENTITIES, *_ADMISSION, *_REACHING_OUT),
    "the kube-apiserver operator renders a KubeAPIServerConfig from its defaults and bootstrap overrides, and sets "
    "--openshift-config; the file contains the same values as fields and apiServerArguments",
)


def kube_apiserver_pod(placement: PodPlacement) -> dict[str, Any]:
    component = PodComponent(
        name=PROGRAM,
        image=placement.image(PROGRAM),
        flags=KUBE_APISERVER.command_line(placement),
        files=(placement.secrets, *(config_files(placement) if placement.has_tunnel else ())),
        probes=_probes(placement),
        cpu="500m" if placement.is_openshift else "250m",
        memory="1Gi" if placement.is_openshift else "512Mi",
        grace_seconds=GRACE_SECONDS if placement.is_openshift else _QUICK_GRACE_SECONDS,
        command=placement.command(PROGRAM),
    )
    return static_pod(component, place=control_plane_place(placement, PROGRAM))


def control_plane_place(placement: PodPlacement, program: str) -> PodMetadata:
    """Return name and namespace; OpenShift has one namespace per program, and bootstrap pods have their own names."""
    namespace = f"openshift-{program}" if placement.is_openshift else PodMetadata.namespace
    return PodMetadata(f"{program}-bootstrap" if placement.is_bootstrap else program, namespace)


def _probes(placement: PodPlacement) -> dict[str, dict[str, Any]]:
    def http_probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return probe("HTTPS", str(placement.node.address), API_PORT, path, period=period, failures=failures, timeout=10)

    return {
        # The nodes of a lab share the cores of one machine and start at the same time.
        "startupProbe": http_probe("/livez", 5, 30 if placement.is_openshift else 60),
        # A restart of kube-apiserver does not help if etcd has a problem.
        "livenessProbe": http_probe("/livez?exclude=etcd", 10, 3),
        "readinessProbe": http_probe("/readyz", 5, 3),
    }
