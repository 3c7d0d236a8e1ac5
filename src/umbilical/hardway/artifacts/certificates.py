"""The files of the hard way's certificates, from its table: pairs and bundles, and how each is explained."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, ClusterNode, ClusterProfile
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.hardway.pki.certificate_set import SIGNERS, Bundle
from umbilical.hardway.pki.row import CertificateRow, ControlPlaneNode, HardwayNames, Scope
from umbilical.hardway.pki.table import TABLE, rows
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree
from umbilical.pki.control_plane_set import NODE, Kind
from umbilical.pki.profiles import Usage

STAGE: Final = 5
ANY_NODE: Final = "NODE"
"""Stands for a node's id in the names of topics."""
_SCOPES: Final = {ClusterProfile.OPENSHIFT: Scope.OPENSHIFT, ClusterProfile.KUBERNETES: Scope.KUBERNETES}
_PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def names(cluster: Cluster) -> HardwayNames:
    """Say what the certificates of a cluster must cover."""
    return HardwayNames(
        scope=_SCOPES[cluster.profile],
        api_name=cluster.api_name,
        internal_api_name=cluster.internal_api_name,
        api_vip=cluster.networks.api_vip,
        service_ip=cluster.service_ip,
        bootstrap=_member(cluster.bootstrap),
        masters=tuple(map(_member, cluster.masters)),
    )


def cluster_rows(cluster: Cluster) -> tuple[CertificateRow, ...]:
    """List the rows of the table that a cluster has."""
    wanted = names(cluster)
    return tuple(rows(wanted.scope, (member.id for member in wanted.members)))


def render_certificates(inputs: Inputs, made: AssetTree) -> AssetTree:
    tree = AssetTree()
    for row in cluster_rows(inputs.cluster):
        pair = inputs.certificates[row.id]
        tree.add(f"{layout.TLS}/{row.public_file}", pair.certificate, PUBLIC_MODE)
        tree.add(f"{layout.TLS}/{row.key_file}", pair.key, SECRET_MODE)
    for bundle in cluster_bundles(inputs.cluster):
        tree.add(layout.bundle(bundle.value), inputs.certificates.bundle(bundle), PUBLIC_MODE)
    return tree


def cluster_bundles(cluster: Cluster) -> tuple[Bundle, ...]:
    """List the bundles of which a cluster has a signer."""
    ids = {row.id for row in cluster_rows(cluster)}
    return tuple(bundle for bundle in Bundle if ids.intersection(SIGNERS[bundle]))


def _member(node: ClusterNode) -> ControlPlaneNode:
    return ControlPlaneNode(node.id, node.name, node.address)


def _topic(row: CertificateRow) -> Topic:
    words = row.words
    name = row.id.replace(NODE, ANY_NODE)
    return Topic(
        TopicKind.CERTIFICATE,
        name,
        STAGE,
        words.what,
        words.readers,
        words.without,
        _by_hand(row, name),
        words.installer,
    )


def _by_hand(row: CertificateRow, name: str) -> str:
    file = f"artifacts/{layout.TLS}/{name}"
    if row.kind is Kind.KEY:
        return f"openssl pkey -in {file}.key -pubout | diff - {file}.pub"
    if row.kind is Kind.AUTHORITY:
        return f"openssl x509 -in {file}.crt -noout -subject -dates -ext basicConstraints,keyUsage"
    purpose = _PURPOSES[row.usages[0]]
    return f"openssl verify -x509_strict -purpose {purpose} -CAfile artifacts/{anchor(row.verified_by[0])} {file}.crt"


def anchor(trusted: str) -> str:
    """Say where that which checks a leaf lies: a bundle, or a signer's certificate."""
    is_bundle = trusted in {bundle.value for bundle in Bundle}
    return layout.bundle(trusted) if is_bundle else layout.certificate(trusted)


_BUNDLE_WORDS: Final = {
    Bundle.SERVER_CA: (
        "Who signs for kube-apiserver, whatever name it is asked by: three signers in one file.",
        "every kubeconfig; kube-controller-manager (--root-ca-file), which gives it to every pod",
        "x509: certificate signed by unknown authority, for one of localhost, the service or the load balancer.",
    ),
    Bundle.CLIENT_CA: (
        "Whose clients are believed.",
        "kube-apiserver (--client-ca-file); kubelets (clientCAFile, /etc/kubernetes/kubelet-ca.crt)",
        "Unauthorized for whoever's signer is missing; without the file a kubelet does not start at all.",
    ),
    Bundle.KUBELET_CA: (
        "By whom kube-apiserver knows kubelets.",
        "kube-apiserver (--kubelet-certificate-authority)",
        "kubectl logs and exec: x509: certificate signed by unknown authority.",
    ),
    Bundle.AGGREGATOR_CA: (
        "Who signs for the aggregator's client.",
        "kube-apiserver (--requestheader-client-ca-file), and through it aggregated API servers",
        "APIServices answer Unauthorized.",
    ),
    Bundle.ETCD_CA: (
        "Who signs for etcd, its peers and its clients.",
        "etcd (--trusted-ca-file, --peer-trusted-ca-file), kube-apiserver (--etcd-cafile)",
        "Members do not join, and kube-apiserver does not start.",
    ),
    Bundle.ETCD_METRICS_CA: (
        "Who signs for etcd's metrics.",
        "etcd's metrics proxy, the monitoring stack",
        "etcd runs, and nobody can see how.",
    ),
}


def _bundle_topic(bundle: Bundle) -> Topic:
    what, readers, without = _BUNDLE_WORDS[bundle]
    file = layout.bundle(bundle.value)
    show = f"openssl crl2pkcs7 -nocrl -certfile artifacts/{file} | openssl pkcs7 -print_certs -noout"
    signers = ", ".join(SIGNERS[bundle])
    return Topic(
        TopicKind.FILE, f"{bundle.value}.crt", STAGE, f"{what} Holds {signers}.", readers, without, show, "The same."
    )


TOPICS: Final[tuple[Topic, ...]] = (
    *{topic.name: topic for topic in map(_topic, TABLE)}.values(),
    *map(_bundle_topic, Bundle),
)
