"""Rules about the objects that operators take over; they must match the bootstrap node's certificates."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.applied import AppliedObject, dig, entries, find, mapping, need, text
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, Unreadable, rule
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError
from umbilical.pki.profiles import Usage
from umbilical.pki.validation import chain_trouble

RBAC: Final = "rbac.authorization.k8s.io"
KUBE_APISERVER: Final = "openshift-kube-apiserver-operator"
CONTROLLER_MANAGER: Final = "openshift-kube-controller-manager-operator"
ETCD: Final = "openshift-etcd"
CONFIG: Final = "openshift-config"
MANAGED: Final = "openshift-config-managed"
MACHINE_CONFIG: Final = "openshift-machine-config-operator"
PREFIX: Final = "auth.openshift.io/"
TLS_KEYS: Final = ("tls.crt", "tls.key")


@dataclass(frozen=True)
class HandoffSigner:
    namespace: str
    secret: str
    row: str
    """Row of the certificate table; its file in tls/ must have the same certificate."""
    signed: tuple[str, ...] = ()
    """Rows that it signed and the bootstrap node uses."""
    purpose: Usage = Usage.CLIENT


SIGNERS: Final = (
    HandoffSigner(KUBE_APISERVER, "aggregator-client-signer", "aggregator-signer", ("aggregator-client",)),
    HandoffSigner(KUBE_APISERVER, "kube-control-plane-signer", "kube-control-plane-signer"),
    HandoffSigner(
        KUBE_APISERVER,
        "kube-apiserver-to-kubelet-signer",
        "kube-apiserver-to-kubelet-signer",
        ("kube-apiserver-to-kubelet-client",),
    ),
    HandoffSigner(
        KUBE_APISERVER,
        "loadbalancer-serving-signer",
        "kube-apiserver-lb-signer",
        ("kube-apiserver-lb-server", "kube-apiserver-internal-lb-server"),
        Usage.SERVER,
    ),
    HandoffSigner(
        KUBE_APISERVER,
        "localhost-serving-signer",
        "kube-apiserver-localhost-signer",
        ("kube-apiserver-localhost-server",),
        Usage.SERVER,
    ),
    HandoffSigner(
        KUBE_APISERVER,
        "service-network-serving-signer",
        "kube-apiserver-service-network-signer",
        ("kube-apiserver-service-network-server",),
        Usage.SERVER,
    ),
    HandoffSigner(CONTROLLER_MANAGER, "csr-signer-signer", "kubelet-signer", ("kubelet-signer",)),
    HandoffSigner(
        ETCD,
        "etcd-signer",
        "etcd-signer",
        ("etcd-peer-bootstrap", "etcd-serving-bootstrap", "etcd-client"),
        Usage.CLIENT,
    ),
    HandoffSigner(ETCD, "etcd-metric-signer", "etcd-metric-signer"),
    HandoffSigner(MACHINE_CONFIG, "machine-config-server-ca", "root-ca"),
)
OBJECTS: Final[tuple[tuple[str, str, str, tuple[str, ...]], ...]] = (
    (
        "Secret",
        KUBE_APISERVER,
        "next-bound-service-account-signing-key",
        ("service-account.key", "service-account.pub"),
    ),
    ("ConfigMap", CONFIG, "admin-kubeconfig-client-ca", ("ca-bundle.crt",)),
    ("ConfigMap", CONFIG, "initial-kube-apiserver-server-ca", ("ca-bundle.crt",)),
    ("ConfigMap", MANAGED, "kubelet-bootstrap-kubeconfig", ("ca-bundle.crt",)),
    ("ConfigMap", MANAGED, "sa-token-signing-certs", ("service-account-001.pub",)),
    ("ConfigMap", MANAGED, "csr-controller-ca", ("ca-bundle.crt",)),
    ("Secret", CONFIG, "initial-service-account-private-key", ("service-account.key",)),
    ("Secret", ETCD, "etcd-client", TLS_KEYS),
    ("Secret", ETCD, "etcd-metric-client", TLS_KEYS),
    ("Secret", ETCD, "etcd-all-certs", ()),
    ("ConfigMap", ETCD, "etcd-ca-bundle", ("ca-bundle.crt",)),
    ("ConfigMap", ETCD, "etcd-metrics-ca-bundle", ("ca-bundle.crt",)),
    ("ConfigMap", ETCD, "etcd-all-bundles", ("server-ca-bundle.crt", "metrics-ca-bundle.crt")),
    ("ConfigMap", MACHINE_CONFIG, "machine-config-server-ca", ("ca-bundle.crt",)),
    ("Secret", MACHINE_CONFIG, "machine-config-server-tls", TLS_KEYS),
    ("ConfigMap", "kube-system", "root-ca", ("ca.crt",)),
)
"""Kind, namespace, name and required keys."""
ETCD_PORTS: Final = (2379, 9979)
PRIVILEGED: Final = (ETCD, "openshift-kube-apiserver", "openshift-kube-controller-manager", "openshift-kube-scheduler")
LABELS: Final[Mapping[str, str]] = {"openshift.io/run-level": "0", "pod-security.kubernetes.io/enforce": "privileged"}
DEFAULT_SCC: Final = "restricted-v2"
"""The constraint for pods of all users; others have roles too, but not in every release."""
SCC_ROLE: Final = f"system:openshift:scc:{DEFAULT_SCC}"
CONTROLLERS: Final = (
    "namespace-security-allocation-controller",
    "podsecurity-admission-label-syncer-controller",
    "privileged-namespaces-psa-label-syncer",
)


def _handoff(facts: LintFacts) -> Iterator[str]:
    for signer in SIGNERS:
        yield from _keys(facts, "Secret", signer.namespace, signer.secret, TLS_KEYS)
    for kind, namespace, name, keys in OBJECTS:
        yield from _keys(facts, kind, namespace, name, keys)
    yield from _member(facts)
    yield from _service(facts)
    yield from _roles(facts)
    yield from _namespaces(facts)
    if find(facts, "ConfigMap", "bootstrap", "kube-system"):
        yield "kube-system/bootstrap is applied: it marks the bootstrap as complete, which only the pivot may do"


def _keys(facts: LintFacts, kind: str, namespace: str, name: str, keys: tuple[str, ...]) -> Iterator[str]:
    found = find(facts, kind, name, namespace)
    if found is None:
        yield f"{kind} {namespace}/{name} is missing"
        return
    missing = [key for key in keys if not text(found.value, "data", key)]
    if missing:
        yield f"{kind} {namespace}/{name} lacks {', '.join(missing)}"


def _member(facts: LintFacts) -> Iterator[str]:
    """Check the bootstrap member's pairs: each in its own Secret, and all in one."""
    together = find(facts, "Secret", "etcd-all-certs", ETCD)
    for kind in ("etcd-peer", "etcd-serving", "etcd-serving-metrics"):
        name = f"{kind}-{facts.cluster.bootstrap.name}"
        yield from _keys(facts, "Secret", ETCD, name, TLS_KEYS)
        if together is not None and not all(text(together.value, "data", f"{name}.{end}") for end in ("crt", "key")):
            yield f"Secret {ETCD}/etcd-all-certs lacks {name}"


def _service(facts: LintFacts) -> Iterator[str]:
    found = find(facts, "Service", "etcd", ETCD)
    ports = [dig(one, "port") for one in entries(found.value, "spec", "ports")] if found else []
    if not all(port in ports for port in ETCD_PORTS):
        yield f"Service {ETCD}/etcd with the ports 2379 and 9979 is missing"


def _roles(facts: LintFacts) -> Iterator[str]:
    wanted = [("ClusterRoleBinding", "system-bootstrap-node-bootstrapper")]
    names = ("kube-apiserver", *(f"system:openshift:controller:{one}" for one in CONTROLLERS), SCC_ROLE)
    wanted += [(kind, name) for name in names for kind in ("ClusterRole", "ClusterRoleBinding")]
    for kind, name in wanted:
        if find(facts, kind, name, group=RBAC) is None:
            yield f"{kind} {name} is missing"
    if find(facts, "SecurityContextConstraints", DEFAULT_SCC, group="security.openshift.io") is None:
        yield f"SecurityContextConstraints {DEFAULT_SCC} is missing"


def _namespaces(facts: LintFacts) -> Iterator[str]:
    for name in PRIVILEGED:
        found = find(facts, "Namespace", name)
        labels = mapping(found.value, "metadata", "labels") if found else {}
        for key, value in LABELS.items():
            if labels.get(key) != value:
                yield f'Namespace {name} lacks the label {key}: "{value}"'


def _signers(facts: LintFacts) -> Iterator[str]:
    for signer in SIGNERS:
        found = need(facts, "Secret", signer.secret, signer.namespace)
        certificate = _certificate(found)
        if certificate.encoded != facts.certificate(signer.row).encoded:
            yield f"{found.path}: {found} has another certificate than {layout.certificate(signer.row)}"
        yield from _annotations(found, certificate)
        for row in signer.signed:
            yield from _signature(facts, signer, row, found, certificate)


def _signature(
    facts: LintFacts, signer: HandoffSigner, row: str, found: AppliedObject, certificate: Certificate
) -> Iterator[str]:
    path = f"{layout.NODE_SECRETS}/{row}.crt"
    try:
        leaf = read_certificates(facts.node_file(facts.cluster.bootstrap, path))[0]
    except BundleError as error:
        raise Unreadable(f"{path}: {error}") from None
    trouble = (
        "" if leaf.encoded == certificate.encoded else chain_trouble(leaf, [certificate], signer.purpose, facts.now)
    )
    if trouble:
        yield f"{found} does not verify {path} of the bootstrap node: {trouble}"


def _annotations(found: AppliedObject, certificate: Certificate) -> Iterator[str]:
    wanted = {
        f"{PREFIX}certificate-not-before": f"{certificate.not_before:%Y-%m-%dT%H:%M:%SZ}",
        f"{PREFIX}certificate-not-after": f"{certificate.not_after:%Y-%m-%dT%H:%M:%SZ}",
        f"{PREFIX}certificate-issuer": certificate.issuer_name,
    }
    actual = mapping(found.value, "metadata", "annotations")
    for key, value in wanted.items():
        if actual.get(key) != value:
            yield f"{found.path}: {key} of {found} is {actual.get(key)}, but its certificate has {value}"
    if text(found.value, "type") != "kubernetes.io/tls":
        yield f"{found.path}: {found} is not of type kubernetes.io/tls"
    if dig(found.value, "metadata", "labels", f"{PREFIX}managed-certificate-type") != "signer":
        yield f"{found.path}: {found} is not labelled as a signer"


def _certificate(found: AppliedObject) -> Certificate:
    try:
        return read_certificates(base64.b64decode(text(found.value, "data", "tls.crt"), validate=True))[0]
    except (BundleError, binascii.Error, ValueError):
        raise Unreadable(f"{found.path}: tls.crt of {found} is not a certificate") from None


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "HO-01",
        "every object that operators take over from the bootstrap node is applied",
        "If an object is missing, the operator makes its own: etcd members do not join, and after the pivot kubelets, "
        "the administrator and all tokens get Unauthorized.",
        "apply the object with the certificates and keys of the bootstrap node",
        _handoff,
        profiles=OPENSHIFT,
    ),
    rule(
        "PKI-10",
        "operators get the signers of the bootstrap node's certificates",
        "With another signer, or with dates that differ from the certificate's, the operator's certificates and the "
        "bootstrap node's do not trust each other.",
        "make Secret, annotations and files from the same key pair",
        _signers,
        profiles=OPENSHIFT,
    ),
)
