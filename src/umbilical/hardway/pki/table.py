"""Who signs what for whom in a cluster that is built by hand: one table, with its explanation in it.

Names and lives are those of OpenShift's installer, whose operators take signers over by name. Two things differ: what
lives one day there lives as long as `shortHours` says, and no signer has OU=openshift, which nobody reads.
Every signer signs itself: OpenSSL and Python trust no intermediate alone.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.pki.row import (
    BOTH,
    CertificateExplanation,
    CertificateNames,
    CertificateRow,
    Life,
    Scope,
    client,
    signer,
)
from umbilical.hardway.pki.table_clients import CONTROL_PLANE, NODES
from umbilical.hardway.pki.table_serving import API, MACHINE_CONFIG
from umbilical.pki.control_plane_set import NODE, Kind


def _etcd(id_: str, signed_by: str, role: str, trust: Bundle, *words: str, scope: Scope = Scope.BOTH) -> CertificateRow:
    # CEO gives both usages to all of them: etcd dials itself with what it serves with.
    name, group = f"system:etcd-{role}:{NODE}", f"system:etcd-{role}s"
    told, life, checked = CertificateExplanation(*words), Life.THREE_YEARS, (trust.value,)
    return CertificateRow(
        f"{id_}-{NODE}", Kind.LEAF, name, told, (group,), signed_by, BOTH, CertificateNames.ETCD, life, scope, checked
    )


ETCD: Final = (
    signer(
        "etcd-signer",
        Life.FIVE_YEARS,
        "Signs everything that etcd serves and believes.",
        "etcd (--trusted-ca-file, --peer-trusted-ca-file), kube-apiserver (--etcd-cafile), the etcd operator",
        "The etcd operator mints a signer of its own, and its members never join the bootstrap node's.",
        "Made by the etcd operator's render step; its Secret needs the not-after annotation to be believed.",
    ),
    signer(
        "etcd-metric-signer",
        Life.FIVE_YEARS,
        "Signs what etcd's metrics are served and fetched with.",
        "etcd's metrics proxy, the monitoring stack",
        "etcd runs, and nobody can see how.",
        "Made by the etcd operator's render step.",
        scope=Scope.OPENSHIFT,
    ),
    client(
        "etcd-client",
        "etcd-signer",
        Life.THREE_YEARS,
        "etcd-client",
        ("system:etcd", "etcd-client"),
        Bundle.ETCD_CA.value,
        "Who kube-apiserver is for etcd.",
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
        "Who scrapes etcd's metrics.",
        "the monitoring stack",
        "etcd runs, and nobody can see how.",
        "The same.",
        scope=Scope.OPENSHIFT,
    ),
    _etcd(
        "etcd-peer",
        "etcd-signer",
        "peer",
        Bundle.ETCD_CA,
        "What an etcd member serves its peers with, and shows to them.",
        "etcd on that node (--peer-cert-file)",
        "The member never joins: rejected connection ... tls: bad certificate.",
        "Both usages; localhost, the etcd service and the node's addresses.",
    ),
    _etcd(
        "etcd-serving",
        "etcd-signer",
        "server",
        Bundle.ETCD_CA,
        "What an etcd member serves clients with. A client's as well, because etcd dials its own port with it.",
        "etcd on that node (--cert-file)",
        "With serverAuth alone, each second: certificate specifies an incompatible key usage; `etcdctl endpoint "
        "health` says unhealthy while /health says true.",
        "Both usages; localhost, the etcd service and the node's addresses.",
    ),
    _etcd(
        "etcd-serving-metrics",
        "etcd-metric-signer",
        "metric",
        Bundle.ETCD_METRICS_CA,
        "What an etcd member serves metrics with.",
        "etcd's metrics proxy on that node",
        "etcd runs, and nobody can see how.",
        "Both usages; the same names.",
        scope=Scope.OPENSHIFT,
    ),
)


_KEYS: Final = (
    CertificateRow(
        "service-account",
        Kind.KEY,
        "",
        CertificateExplanation(
            "The key that signs a service account's long-lived tokens.",
            "kube-controller-manager (--service-account-private-key-file); kube-apiserver has the public half",
            "Pods are Unauthorized; after the pivot all of them, if the public half is not handed over.",
            "The same; RSA always.",
        ),
    ),
    CertificateRow(
        "bound-service-account-signing-key",
        Kind.KEY,
        "",
        CertificateExplanation(
            "The key that signs the short tokens that kubelets put into pods.",
            "kube-apiserver (--service-account-signing-key-file, and the public half to check them)",
            "kube-apiserver does not start without it; with another one, each pod's token is Unauthorized.",
            "The same, handed on as next-bound-service-account-signing-key; RSA always.",
        ),
    ),
)

TABLE: Final[tuple[CertificateRow, ...]] = (*MACHINE_CONFIG, *API, *NODES, *CONTROL_PLANE, *ETCD, *_KEYS)


def rows(scope: Scope, nodes: Iterable[str]) -> Iterator[CertificateRow]:
    """List what a cluster has, signers before what they sign; some once for each of these nodes."""
    known = tuple(nodes)
    for row in TABLE:
        if row.scope not in (Scope.BOTH, scope):
            continue
        if NODE in row.id:
            yield from (row.for_node(node) for node in known)
        else:
            yield row
