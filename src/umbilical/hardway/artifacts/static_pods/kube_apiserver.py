"""kube-apiserver: on the bootstrap node, and in the kubernetes profile on every master with the same command line."""

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
from umbilical.manifests.static_pod import Component, Place, probe, static_pod
from umbilical.pki.certificate import read_certificates

PROGRAM: Final = "kube-apiserver"
ETCD_PREFIX: Final = "kubernetes.io"
# Where the load balancer is our own and notices within five seconds, and where machines come and go in minutes.
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
        "what it writes into the endpoints of the service `kubernetes`, where pods find it",
        "it takes the address of the default route, which may belong to another network",
    ),
    FlagRow(
        "bind-address",
        lambda placement: placement.every_address,
        "the load balancer comes by the node's address, neighbours by loopback",
        "with one address alone: connection refused for all who come by another",
    ),
    FlagRow(
        "secure-port",
        str(API_PORT),
        "the API's port everywhere in this cluster: kubeconfigs, load balancer, firewall",
        "connection refused on 6443",
    ),
    FlagRow(
        "tls-cert-file",
        certificate(_SERVING),
        "shown where no other fits: to clients that dial an address and so send no name",
        "x509: certificate is valid for ..., not 172.30.0.1 in every pod",
    ),
    FlagRow("tls-private-key-file", key(_SERVING), "the key of --tls-cert-file", "it exits: no such file or directory"),
    FlagRow(
        "tls-sni-cert-key",
        _sni("kube-apiserver-localhost-server", "localhost", "127.0.0.1"),
        "for those on the same node: controller-manager, scheduler, the version operator",
        "x509: certificate is valid for kubernetes, ..., not localhost",
    ),
    FlagRow(
        "tls-sni-cert-key",
        lambda placement: _sni("kube-apiserver-lb-server", placement.cluster.api_name),
        "for people and programs outside of the cluster",
        "kubectl: x509: certificate is valid for ..., not api.<domain>",
    ),
    FlagRow(
        "tls-sni-cert-key",
        lambda placement: _sni("kube-apiserver-internal-lb-server", placement.cluster.internal_api_name),
        "for kubelets and kube-proxy",
        "nodes never register: x509: certificate is valid for ..., not api-int.<domain>",
    ),
    FlagRow(
        "shutdown-delay-duration",
        by_profile(openshift=f"{SHUTDOWN_DELAY_SECONDS}s", kubernetes=f"{_QUICK_SHUTDOWN_DELAY_SECONDS}s"),
        "told to stop, it answers on and says `not ready`, until every load balancer has noticed. OpenShift's figure "
        "suits balancers of any cloud; that of the kubernetes profile ours, which looks every two seconds",
        "requests are lost whenever it stops, at the pivot above all",
    ),
    FlagRow(
        "endpoint-reconciler-type",
        "lease",
        "each counts among the endpoints of `kubernetes` while it renews its lease: the bootstrap one goes by itself",
        "pods keep dialling an API server that is gone",
    ),
)

_STORAGE: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "etcd-servers",
        f"https://localhost:{ETCD_CLIENT_PORT}",
        "the member on the same node: it is there as long as this one is",
        "with the bootstrap node's address in it, masters lose their store at the pivot",
    ),
    FlagRow(
        "etcd-cafile", bundle(Bundle.ETCD_CA), "who signs for etcd", "x509: certificate signed by unknown authority"
    ),
    FlagRow(
        "etcd-certfile", certificate("etcd-client"), "who it is for etcd", "remote error: tls: certificate required"
    ),
    FlagRow("etcd-keyfile", key("etcd-client"), "the key of --etcd-certfile", "it exits: no such file or directory"),
    FlagRow(
        "etcd-prefix",
        ETCD_PREFIX,
        "below which key objects are stored: OpenShift's operators start the masters' API servers with this one",
        "with the default /registry the masters see an empty cluster after the pivot: like a loss of all data",
        on_openshift,
    ),
)

_IDENTITIES: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "client-ca-file",
        bundle(Bundle.CLIENT_CA),
        "whose certificates it takes as identities: administrators, kubelets old and new, the control plane",
        "Unauthorized for whoever is signed by the one that is missing",
    ),
    FlagRow(
        "anonymous-auth",
        "true",
        "kubelet and load balancer ask /livez and /readyz as nobody; RBAC gives nobody hardly more",
        "probes get 401, the kubelet restarts it, the load balancer takes it out",
    ),
    FlagRow(
        "authorization-mode",
        "Node,RBAC",
        "kubelets see what their pods need, all others what roles say",
        "AlwaysAllow is the default: everybody may do everything",
    ),
    FlagRow(
        "service-account-issuer",
        ISSUER,
        "stands in every token as its issuer; it must be the same on all API servers, before and after the pivot",
        "tokens of one are refused by the next",
    ),
    FlagRow(
        "api-audiences",
        ISSUER,
        "for whom a token is meant that names nobody; those of pods are such",
        "Unauthorized: token audiences is invalid for the target audiences",
    ),
    FlagRow(
        "service-account-key-file",
        public_key("service-account"),
        "checks tokens that controller-manager signed (long-lived ones in Secrets)",
        "Unauthorized for controllers that use such tokens",
    ),
    FlagRow(
        "service-account-key-file",
        public_key("bound-service-account-signing-key"),
        "checks tokens that an API server signed (those in pods)",
        "Unauthorized for every pod",
    ),
    FlagRow(
        "service-account-signing-key-file",
        key("bound-service-account-signing-key"),
        "signs tokens for pods. A pair of its own, which OpenShift's operator takes over",
        "no pod gets a token, so none starts",
    ),
)

_ADMISSION: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "enable-admission-plugins",
        "NodeRestriction",
        "a kubelet changes its own Node and its own pods only. (No SCC here: what is created through this API server "
        "on OpenShift carries no openshift.io/scc annotation; the masters' servers add that admission)",
        "one stolen kubelet certificate changes all nodes",
    ),
    FlagRow(
        "allow-privileged",
        "true",
        "pods of the network and of the control plane are privileged",
        "they are refused: privileged containers are disallowed",
    ),
    FlagRow(
        "service-cluster-ip-range",
        lambda placement: str(placement.cluster.networks.services),
        "where cluster IPs come from; the first is the service `kubernetes`, and stands in the serving certificate",
        "services get addresses that kube-proxy and certificates know nothing of",
    ),
)

_REACHING_OUT: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "kubelet-certificate-authority",
        bundle(Bundle.KUBELET_CA),
        "who signs for kubelets: controller-manager with the kubelet signer",
        "logs and exec work with any impostor, or with the wrong bundle not at all",
    ),
    FlagRow(
        "kubelet-client-certificate",
        certificate("kube-apiserver-to-kubelet-client"),
        "who it is for kubelets; a role must let this name reach nodes/proxy",
        "kubectl logs: Unauthorized; without the role: Forbidden",
    ),
    FlagRow(
        "kubelet-client-key",
        key("kube-apiserver-to-kubelet-client"),
        "the key of --kubelet-client-certificate",
        "it exits: no such file or directory",
    ),
    FlagRow(
        "kubelet-preferred-address-types",
        "InternalIP",
        "nodes are dialled by address: whoever answers for their names may not be there yet",
        "kubectl logs: dial tcp: lookup master-0...: no such host",
    ),
    FlagRow(
        "requestheader-client-ca-file",
        bundle(Bundle.AGGREGATOR_CA),
        "who signs for front proxies; an authority of its own, or any client could claim any user",
        "aggregated APIs take nobody's word for who asks",
    ),
    FlagRow(
        "requestheader-allowed-names",
        _proxy_client_name,
        "the common name of --proxy-client-cert-file: headers are believed from this name alone",
        "every call of an aggregated API ends in Unauthorized",
    ),
    FlagRow(
        "requestheader-username-headers",
        "X-Remote-User",
        "in which header a front proxy says who asks",
        "aggregated APIs see everybody as system:anonymous",
    ),
    FlagRow(
        "requestheader-group-headers", "X-Remote-Group", "in which header the groups stand", "users have no groups"
    ),
    FlagRow("requestheader-extra-headers-prefix", "X-Remote-Extra-", "how further headers begin", "scopes are lost"),
    FlagRow(
        "proxy-client-cert-file",
        certificate(_PROXY_CLIENT),
        "who it is for aggregated APIs and webhooks that ask for a certificate",
        "aggregated APIs refuse it",
    ),
    FlagRow(
        "proxy-client-key-file",
        key(_PROXY_CLIENT),
        "the key of --proxy-client-cert-file",
        "it exits: no such file or directory",
    ),
    FlagRow(
        "enable-aggregator-routing",
        "true",
        "endpoints are dialled, not cluster IPs, which lead nowhere on a node without kube-proxy",
        "aggregated APIs time out on the bootstrap node",
    ),
    FlagRow(
        EGRESS_FLAG,
        EGRESS_IN_POD,
        "the bootstrap node has no way to pods: calls into the cluster go through the tunnel that agents hold open. "
        "Masters have one, so there the flag must not be",
        "webhooks and aggregated APIs in pods time out until the pivot: context deadline exceeded",
        lambda placement: placement.has_tunnel,
    ),
    VERBOSITY,
)

KUBE_APISERVER: Final = ProgramFlags(
    PROGRAM,
    (*_LISTENING, *_STORAGE, *_IDENTITIES, *_ADMISSION, *_REACHING_OUT),
    "the kube-apiserver operator renders a KubeAPIServerConfig from its defaults and bootstrap overrides, and the pod "
    "gets --openshift-config with it; the same values stand there as fields and apiServerArguments",
)


def kube_apiserver_pod(placement: PodPlacement) -> dict[str, Any]:
    component = Component(
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


def control_plane_place(placement: PodPlacement, program: str) -> Place:
    """OpenShift has a namespace for each; the bootstrap node's pods are told from the masters' by their names."""
    namespace = f"openshift-{program}" if placement.is_openshift else Place.namespace
    return Place(f"{program}-bootstrap" if placement.is_bootstrap else program, namespace)


def _probes(placement: PodPlacement) -> dict[str, dict[str, Any]]:
    def ask(path: str, period: int, failures: int) -> dict[str, Any]:
        return probe("HTTPS", str(placement.node.address), API_PORT, path, period=period, failures=failures, timeout=10)

    return {
        # Nodes of a lab share their cores, and all begin at once.
        "startupProbe": ask("/livez", 5, 30 if placement.is_openshift else 60),
        # etcd's trouble is not mended by a restart of this one.
        "livenessProbe": ask("/livez?exclude=etcd", 10, 3),
        "readinessProbe": ask("/readyz", 5, 3),
    }
