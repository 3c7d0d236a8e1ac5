"""The certificates of a hard way cluster: key pairs by row id of the certificate table, and CA bundles."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from umbilical.pki.pem import KeyPair, join_bundle


class Bundle(Enum):
    """A CA bundle; the value is its file name, the same as in OpenShift's installer."""

    SERVER_CA = "kube-apiserver-complete-server-ca-bundle"
    """Signers of kube-apiserver's serving certificates; in kubeconfigs, and in pods as kube-root-ca.crt."""
    CLIENT_CA = "kube-apiserver-complete-client-ca-bundle"
    """Signers of the client certificates that kube-apiserver and kubelets accept."""
    KUBELET_CA = "kubelet-client-ca-bundle"
    """Signers of the kubelets' serving certificates, which kube-apiserver verifies."""
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
    """Key pairs by row id; the "certificate" of a bare key is its public key."""

    def __init__(self, pairs: Mapping[str, KeyPair]) -> None:
        self._pairs = dict(pairs)

    def __getitem__(self, row_id: str) -> KeyPair:
        return self._pairs[row_id]

    def __contains__(self, row_id: object) -> bool:
        return row_id in self._pairs

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def bundle(self, bundle: Bundle) -> bytes:
        """Join the certificates of the bundle's signers that this profile has."""
        return join_bundle(*(self._pairs[one].certificate for one in SIGNERS[bundle] if one in self._pairs))
