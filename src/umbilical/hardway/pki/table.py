"""Who signs what for whom in a cluster that is built by hand: one table, with its explanation in it.

Names and lives are those of OpenShift's installer, whose operators take signers over by name. Two things differ: what
lives one day there lives as long as `shortHours` says, and no signer has OU=openshift, which nobody reads.
Every signer signs itself: OpenSSL and Python trust no intermediate alone.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from umbilical.hardway.pki.row import Row, Scope, Words
from umbilical.hardway.pki.table_clients import CONTROL_PLANE, NODES
from umbilical.hardway.pki.table_etcd import ETCD
from umbilical.hardway.pki.table_serving import API, MACHINE_CONFIG
from umbilical.pki.control_plane_set import NODE, Kind

_KEYS: Final = (
    Row(
        "service-account",
        Kind.KEY,
        "",
        Words(
            "The key that signs a service account's long-lived tokens.",
            "kube-controller-manager (--service-account-private-key-file); kube-apiserver has the public half",
            "Pods are Unauthorized; after the pivot all of them, if the public half is not handed over.",
            "The same; RSA always.",
        ),
    ),
    Row(
        "bound-service-account-signing-key",
        Kind.KEY,
        "",
        Words(
            "The key that signs the short tokens that kubelets put into pods.",
            "kube-apiserver (--service-account-signing-key-file, and the public half to check them)",
            "kube-apiserver does not start without it; with another one, each pod's token is Unauthorized.",
            "The same, handed on as next-bound-service-account-signing-key; RSA always.",
        ),
    ),
)

TABLE: Final[tuple[Row, ...]] = (*MACHINE_CONFIG, *API, *NODES, *CONTROL_PLANE, *ETCD, *_KEYS)


def rows(scope: Scope, nodes: Iterable[str]) -> Iterator[Row]:
    """List what a cluster has, signers before what they sign; some once for each of these nodes."""
    known = tuple(nodes)
    for row in TABLE:
        if row.scope not in (Scope.BOTH, scope):
            continue
        if NODE in row.id:
            yield from (row.for_node(node) for node in known)
        else:
            yield row
