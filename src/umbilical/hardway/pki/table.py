"""The certificate table of a hard way cluster: each certificate with its signer, purpose and explanation.

Names and lifetimes are those of OpenShift's installer, because its operators take over signers by name. There are two
differences: certificates with a lifetime of one day get `shortHours`, and no signer has OU=openshift, which nothing
reads. Every signer is self-signed, because OpenSSL and Python do not trust an intermediate alone.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.pki.row import BOTH, CertificateNames, CertificateRow, Life, RowText, Scope, client, signer
from umbilical.hardway.pki.table_clients import CONTROL_PLANE, NODES
from umbilical.hardway.pki.table_serving import API, MACHINE_CONFIG
from umbilical.pki.control_plane_set import NODE, PkiKind


def _etcd(id_: str, signed_by: str, role: str, trust: Bundle, *words: str, scope: Scope = Scope.BOTH) -> CertificateRow:
    # The etcd operator gives both usages to all of them: etcd dials itself with its serving certificate.
    name, group = f"system:etcd-{role}:{NODE}", f"system:etcd-{role}s"
    text, life, checked = RowText(*words), Life.THREE_YEARS, (trust.value,)
    return CertificateRow(
        f"{id_}-{NODE}",
        PkiKind.LEAF,
        name,
        text,
        (group,),
        signed_by,
        BOTH,
        CertificateNames.ETCD,
        life,
        scope,
        checked,
    )


ETCD: Final = (
    signer(
        "etcd-signer",
        Life.FIVE_YEARS,
        "Signs the serving, peer and client certificates of etcd.",
        "etcd (--trusted-ca-file, --peer-trusted-ca-file), kube-apiserver (--etcd-cafile), the etcd operator",
        "The etcd operator makes its own signer, and its members cannot join the bootstrap node's etcd.",
        "The etcd operator's render step makes it; the operator accepts its Secret only with the not-after annotation.",
    ),
    signer(
        "etcd-metric-signer",
        Life.FIVE_YEARS,
        "Signs the server and client certificates for etcd's metrics.",
        "etcd's metrics proxy, the monitoring stack",
        "etcd runs, but its metrics cannot be read.",
        "The etcd operator's render step makes it.",
        scope=Scope.OPENSHIFT,
    ),
    client(
        "etcd-client",
        "etcd-signer",
        Life.THREE_YEARS,
        "etcd-client",
        ("system:etcd", "etcd-client"),
        Bundle.ETCD_CA.value,
        "The client certificate with which kube-apiserver connects to etcd.",
        "kube-apiserver (--etcd-certfile), etcdctl, the etcd operator",
        "kube-apiserver does not start: transport: authentication handshake failed: tls: bad certificate.",
        "The same name and groups.",
    ),
    client(
        "etcd-metric-client",
        "etcd-metric-signer",
        Life.THREE_YEARS,
        "etcd-metric-client",
        ("system:etcd", "etcd-metric-client"),
        Bundle.ETCD_METRICS_CA.value,
        "The client certificate that reads etcd's metrics.",
        "the monitoring stack",
        "etcd runs, but its metrics cannot be read.",
        "The same.",
        scope=Scope.OPENSHIFT,
    ),
    _etcd(
        "etcd-peer",
        "etcd-signer",
        "peer",
        Bundle.ETCD_CA,
        "The certificate between etcd members: each is server and client of the others.",
        "etcd on that node (--peer-cert-file)",
        "The member never joins: rejected connection ... tls: bad certificate.",
        "Both usages; names: localhost, the etcd Service and the node's addresses.",
    ),
    _etcd(
        "etcd-serving",
        "etcd-signer",
        "server",
        Bundle.ETCD_CA,
        "The serving certificate of an etcd member for clients. It is a client certificate too, because etcd dials its "
        "own port with it.",
        "etcd on that node (--cert-file)",
        "With serverAuth alone etcd logs every second: certificate specifies an incompatible key usage; `etcdctl "
        "endpoint health` reports unhealthy although /health returns true.",
        "Both usages; names: localhost, the etcd Service and the node's addresses.",
    ),
    _etcd(
        "etcd-serving-metrics",
        "etcd-metric-signer",
        "metric",
        Bundle.ETCD_METRICS_CA,
        "The serving certificate for an etcd member's metrics.",
        "etcd's metrics proxy on that node",
        "etcd runs, but its metrics cannot be read.",
        "Both usages; the same names as etcd-serving.",
        scope=Scope.OPENSHIFT,
    ),
)


_KEYS: Final = (
    CertificateRow(
        "service-account",
        PkiKind.KEY,
        "",
        RowText(
            "The key that signs long-lived service account tokens.",
            "kube-controller-manager (--service-account-private-key-file); kube-apiserver has the public key",
            "Pods get Unauthorized; after the pivot all of them, if the operator does not get the public key.",
            "The same; always RSA.",
        ),
    ),
    CertificateRow(
        "bound-service-account-signing-key",
        PkiKind.KEY,
        "",
        RowText(
            "The key that signs the short-lived tokens that kubelets put into pods.",
            "kube-apiserver (--service-account-signing-key-file, and the public key to verify them)",
            "kube-apiserver does not start; if the key changes, every pod's token gets Unauthorized.",
            "The same; the operator gets it as next-bound-service-account-signing-key; always RSA.",
        ),
    ),
)

TABLE: Final[tuple[CertificateRow, ...]] = (*MACHINE_CONFIG, *API, *NODES, *CONTROL_PLANE, *ETCD, *_KEYS)


def rows(scope: Scope, nodes: Iterable[str]) -> Iterator[CertificateRow]:
    """List a cluster's rows, signers before the rows that they sign; rows for each node once per node."""
    known = tuple(nodes)
    for row in TABLE:
        if row.scope not in (Scope.BOTH, scope):
            continue
        if NODE in row.id:
            yield from (row.for_node(node) for node in known)
        else:
            yield row
