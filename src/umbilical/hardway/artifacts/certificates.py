"""The files of the certificate table: key pairs and bundles, and their explanations."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, ClusterNode, ClusterProfile
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.hardway.pki.certificate_set import SIGNERS, Bundle
from umbilical.hardway.pki.row import CertificateRow, ControlPlaneNode, HardwayNames, Scope
from umbilical.hardway.pki.table import TABLE, rows
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree
from umbilical.pki.control_plane_set import NODE, PkiKind
from umbilical.pki.profiles import Usage

STAGE: Final = 5
ANY_NODE: Final = "NODE"
"""Placeholder for a node's id in the names of topics."""
_SCOPES: Final = {ClusterProfile.OPENSHIFT: Scope.OPENSHIFT, ClusterProfile.KUBERNETES: Scope.KUBERNETES}
_PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def names(cluster: Cluster) -> HardwayNames:
    """Return the names and addresses that the cluster's certificates must contain."""
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
    """List the rows of the table for this cluster."""
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
    """List the bundles with at least one signer in this cluster."""
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
    if row.kind is PkiKind.KEY:
        return f"openssl pkey -in {file}.key -pubout | diff - {file}.pub"
    if row.kind is PkiKind.AUTHORITY:
        return f"openssl x509 -in {file}.crt -noout -subject -dates -ext basicConstraints,keyUsage"
    purpose = _PURPOSES[row.usages[0]]
    return f"openssl verify -x509_strict -purpose {purpose} -CAfile artifacts/{anchor(row.verified_by[0])} {file}.crt"


def anchor(trusted: str) -> str:
    """Return the path of the file that verifies a leaf: a bundle or a signer's certificate."""
    is_bundle = trusted in {bundle.value for bundle in Bundle}
    return layout.bundle(trusted) if is_bundle else layout.certificate(trusted)


_BUNDLE_WORDS: Final = {
    Bundle.SERVER_CA: (
        "The three signers of kube-apiserver's serving certificates.",
        "every kubeconfig; kube-controller-manager (--root-ca-file), which gives it to every pod",
        "x509: certificate signed by unknown authority, on localhost, the Service or the load balancer.",
    ),
    Bundle.CLIENT_CA: (
        "The signers of all client certificates that kube-apiserver and kubelets accept.",
        "kube-apiserver (--client-ca-file); kubelets (clientCAFile, /etc/kubernetes/kubelet-ca.crt)",
        "Clients of a missing signer get Unauthorized; without the file a kubelet does not start.",
    ),
    Bundle.KUBELET_CA: (
        "The signer of the kubelets' serving certificates.",
        "kube-apiserver (--kubelet-certificate-authority)",
        "kubectl logs and exec: x509: certificate signed by unknown authority.",
    ),
    Bundle.AGGREGATOR_CA: (
        "The signer of kube-apiserver's client certificate for aggregated API servers.",
        "kube-apiserver (--requestheader-client-ca-file), and through it aggregated API servers",
        "APIServices return Unauthorized.",
    ),
    Bundle.ETCD_CA: (
        "The signer of etcd's serving, peer and client certificates.",
        "etcd (--trusted-ca-file, --peer-trusted-ca-file), kube-apiserver (--etcd-cafile)",
        "Members do not join, and kube-apiserver does not start.",
    ),
    Bundle.ETCD_METRICS_CA: (
        "The signer of the certificates for etcd's metrics.",
        "etcd's metrics proxy, the monitoring stack",
        "etcd runs, but its metrics cannot be read.",
    ),
}


def _bundle_topic(bundle: Bundle) -> Topic:
    what, readers, without = _BUNDLE_WORDS[bundle]
    file = layout.bundle(bundle.value)
    show = f"openssl crl2pkcs7 -nocrl -certfile artifacts/{file} | openssl pkcs7 -print_certs -noout"
    signers = ", ".join(SIGNERS[bundle])
    return Topic(
        TopicKind.FILE, f"{bundle.value}.crt", STAGE, f"{what} Contains {signers}.", readers, without, show, "The same."
    )


TOPICS: Final[tuple[Topic, ...]] = (
    *{topic.name: topic for topic in map(_topic, TABLE)}.values(),
    *map(_bundle_topic, Bundle),
)
