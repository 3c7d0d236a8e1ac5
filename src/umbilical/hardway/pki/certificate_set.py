"""The certificates of a cluster that is built by hand: pairs by the ids of their table, and bundles of signers."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from umbilical.pki.pem import KeyPair, join_bundle


class Bundle(Enum):
    """What is trusted together; the values are file names, as OpenShift's installer has them."""

    SERVER_CA = "kube-apiserver-complete-server-ca-bundle"
    """Who signs for kube-apiserver: in kubeconfigs, and what controller-manager gives to pods."""
    CLIENT_CA = "kube-apiserver-complete-client-ca-bundle"
    """Whose clients kube-apiserver believes, and kubelets too."""
    KUBELET_CA = "kubelet-client-ca-bundle"
    """By whom kube-apiserver knows kubelets."""
    AGGREGATOR_CA = "aggregator-ca-bundle"
    ETCD_CA = "etcd-ca-bundle"
    ETCD_METRICS_CA = "etcd-metrics-ca-bundle"


SIGNERS: Final[Mapping[Bundle, tuple[str, ...]]] = {
    Bundle.SERVER_CA: (
        "kube-apiserver-localhost-signer",
        "kube-apiserver-service-network-signer",
        "kube-apiserver-lb-signer",
    ),
    Bundle.CLIENT_CA: (
        "admin-kubeconfig-signer",
        "kubelet-signer",
        "kube-control-plane-signer",
        "kube-apiserver-to-kubelet-signer",
        "kubelet-bootstrap-kubeconfig-signer",
    ),
    Bundle.KUBELET_CA: ("kubelet-signer",),
    Bundle.AGGREGATOR_CA: ("aggregator-signer",),
    Bundle.ETCD_CA: ("etcd-signer",),
    Bundle.ETCD_METRICS_CA: ("etcd-metric-signer",),
}


class HardwaySet:
    """For a row that is a bare key the "certificate" is the public key."""

    def __init__(self, pairs: Mapping[str, KeyPair]) -> None:
        self._pairs = dict(pairs)

    def __getitem__(self, row_id: str) -> KeyPair:
        return self._pairs[row_id]

    def __contains__(self, row_id: object) -> bool:
        return row_id in self._pairs

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def bundle(self, bundle: Bundle) -> bytes:
        """Join the signers' certificates, those that the profile has."""
        return join_bundle(*(self._pairs[one].certificate for one in SIGNERS[bundle] if one in self._pairs))
