"""Certificates and keys that operators take over from the bootstrap control plane.

Each signer has two names: its row in the certificate table, and the Secret that an operator looks for. If the Secret is
missing or has no dates, the operator makes its own signer, and nothing trusts the bootstrap node's certificates.
"""

from collections.abc import Mapping
from typing import Final

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests import objects
from umbilical.hardway.artifacts.manifests.objects import TARGET, bundle, certificate_secret, head, plain_secret
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.objects import Object, config_map, manifest

KUBE_APISERVER_SIGNERS: Final[Mapping[str, str]] = {
    "aggregator-client-signer": "aggregator-signer",
    "kube-apiserver-to-kubelet-signer": "kube-apiserver-to-kubelet-signer",
    "kube-control-plane-signer": "kube-control-plane-signer",
    "loadbalancer-serving-signer": "kube-apiserver-lb-signer",
    "localhost-serving-signer": "kube-apiserver-localhost-signer",
    "service-network-serving-signer": "kube-apiserver-service-network-signer",
}
"""Name in the operator's namespace -> row of the certificate table."""
ETCD_SIGNERS: Final = ("etcd-signer", "etcd-metric-signer")
ETCD_CLIENTS: Final = ("etcd-client", "etcd-metric-client")
ETCD_MEMBER: Final = ("etcd-peer", "etcd-serving", "etcd-serving-metrics")


def kube_apiserver_operator(inputs: Inputs) -> list[Object]:
    namespace = objects.KUBE_APISERVER_OPERATOR
    rows = KUBE_APISERVER_SIGNERS
    bound = inputs.certificates["bound-service-account-signing-key"]
    keys = {"service-account.key": bound.key, "service-account.pub": bound.certificate}
    return [
        *(certificate_secret(namespace, name, inputs.certificates[rows[name]]) for name in sorted(rows)),
        plain_secret(namespace, "next-bound-service-account-signing-key", keys),
    ]


def client_authorities(inputs: Inputs) -> list[Object]:
    """Return the client CAs for the masters' kube-apiservers, and the public key for existing tokens."""
    made = inputs.certificates
    tokens = {"service-account-001.pub": made["service-account"].certificate.decode()}
    return [
        bundle(objects.CONFIG, "admin-kubeconfig-client-ca", made["admin-kubeconfig-signer"].certificate),
        bundle(objects.CONFIG, "initial-kube-apiserver-server-ca", made.bundle(Bundle.CLIENT_CA)),
        bundle(
            objects.CONFIG_MANAGED,
            "kubelet-bootstrap-kubeconfig",
            made["kubelet-bootstrap-kubeconfig-signer"].certificate,
        ),
        bundle(objects.CONFIG_MANAGED, "csr-controller-ca", made["kubelet-signer"].certificate),
        config_map(head("sa-token-signing-certs", objects.CONFIG_MANAGED), tokens),
    ]


def controller_manager_operator(inputs: Inputs) -> list[Object]:
    made = inputs.certificates
    key = {"service-account.key": made["service-account"].key}
    return [
        certificate_secret(objects.CONTROLLER_MANAGER_OPERATOR, "csr-signer-signer", made["kubelet-signer"]),
        plain_secret(objects.CONFIG, "initial-service-account-private-key", key),
    ]


def etcd_operator(inputs: Inputs) -> list[Object]:
    """Return the PKI of the bootstrap node's etcd: members that the operator adds have to trust it."""
    made = inputs.certificates
    return [
        *(certificate_secret(objects.ETCD, name, made[name]) for name in ETCD_SIGNERS),
        *(certificate_secret(objects.ETCD, name, made[name], TARGET) for name in ETCD_CLIENTS),
        *_etcd_member(inputs),
        bundle(objects.ETCD, "etcd-ca-bundle", made.bundle(Bundle.ETCD_CA)),
        bundle(objects.ETCD, "etcd-metrics-ca-bundle", made.bundle(Bundle.ETCD_METRICS_CA)),
        config_map(
            head("etcd-all-bundles", objects.ETCD),
            {
                "server-ca-bundle.crt": made.bundle(Bundle.ETCD_CA).decode(),
                "metrics-ca-bundle.crt": made.bundle(Bundle.ETCD_METRICS_CA).decode(),
            },
        ),
        _etcd_service(),
    ]


def machine_config_operator(inputs: Inputs) -> list[Object]:
    made = inputs.certificates
    namespace = objects.MACHINE_CONFIG
    root = made["root-ca"]
    return [
        certificate_secret(namespace, "machine-config-server-ca", root),
        bundle(namespace, "machine-config-server-ca", root.certificate),
        certificate_secret(namespace, "machine-config-server-tls", made["machine-config-server"], TARGET),
        config_map(head("root-ca", "kube-system"), {"ca.crt": root.certificate.decode()}),
    ]


def _etcd_member(inputs: Inputs) -> list[Object]:
    """Return the bootstrap member's three pairs, each in its own Secret and all in one, with the host's name."""
    node = inputs.cluster.bootstrap
    pairs = {f"{kind}-{node.name}": inputs.certificates[f"{kind}-{node.id}"] for kind in ETCD_MEMBER}
    together = {f"{name}.crt": pair.certificate for name, pair in pairs.items()}
    together |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    return [
        *(certificate_secret(objects.ETCD, name, pair, TARGET) for name, pair in pairs.items()),
        plain_secret(objects.ETCD, "etcd-all-certs", {name: together[name] for name in sorted(together)}),
    ]


def _etcd_service() -> Object:
    ports = [
        {"name": "etcd", "port": 2379, "protocol": "TCP"},
        {"name": "etcd-metrics", "port": 9979, "protocol": "TCP"},
    ]
    labels = {"k8s-app": "etcd"}
    spec = {"selector": {"etcd": "true"}, "ports": ports, "sessionAffinity": "None", "type": "ClusterIP"}
    return manifest("v1", "Service", head("etcd", objects.ETCD, labels=labels), spec=spec)
