"""Building blocks of manifests: files, namespaces, RBAC, and Secrets and ConfigMaps with certificates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.manifests.objects import Object, config_map, manifest, secret
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree, yaml_bytes
from umbilical.pki.certificate import Moment, read_certificates
from umbilical.pki.pem import KeyPair

TLS: Final = "kubernetes.io/tls"
NOT_BEFORE: Final = "auth.openshift.io/certificate-not-before"
NOT_AFTER: Final = "auth.openshift.io/certificate-not-after"
ISSUER: Final = "auth.openshift.io/certificate-issuer"
CERTIFICATE_TYPE: Final = "auth.openshift.io/managed-certificate-type"
SIGNER: Final = "signer"
TARGET: Final = "target"
CA_BUNDLE: Final = "ca-bundle"
BUNDLE_KEY: Final = "ca-bundle.crt"
RBAC: Final = "rbac.authorization.k8s.io"


def head(name: str, namespace: str = "", **more: Mapping[str, str]) -> Object:
    """Return metadata; `more` is labels and annotations."""
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, **{key: dict(value) for key, value in more.items() if value}}


def timestamp(moment: Moment) -> str:
    """Format as RFC 3339 in UTC with whole seconds, as Go does."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def certificate_annotations(pem: bytes) -> dict[str, str]:
    """Return the annotations with a certificate's dates. Without them an operator replaces it at once."""
    certificate = read_certificates(pem)[0]
    return {
        NOT_BEFORE: timestamp(certificate.not_before),
        NOT_AFTER: timestamp(certificate.not_after),
        ISSUER: certificate.issuer_name,
    }


def certificate_secret(namespace: str, name: str, pair: KeyPair, kind: str = SIGNER) -> Object:
    annotations = certificate_annotations(pair.certificate)
    labels = {CERTIFICATE_TYPE: kind}
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return secret(head(name, namespace, labels=labels, annotations=annotations), data, TLS)


def bundle(namespace: str, name: str, pem: bytes, key: str = BUNDLE_KEY) -> Object:
    return config_map(head(name, namespace, labels={CERTIFICATE_TYPE: CA_BUNDLE}), {key: pem.decode()})


def plain_secret(namespace: str, name: str, data: Mapping[str, bytes]) -> Object:
    return secret(head(name, namespace), data)


def user(name: str) -> Object:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def service_account(namespace: str, name: str) -> Object:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def cluster_role(name: str, *rules: Mapping[str, Any]) -> Object:
    return manifest(f"{RBAC}/v1", "ClusterRole", head(name), rules=[dict(rule) for rule in rules])


def access(group: str, resources: Sequence[str], verbs: Sequence[str], **more: Any) -> Object:
    """Return one rule of a role."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs), **more}


def cluster_role_binding(name: str, role: str, *subjects: Object) -> Object:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    return manifest(f"{RBAC}/v1", "ClusterRoleBinding", head(name), roleRef=reference, subjects=list(subjects))


CONFIG: Final = "openshift-config"
CONFIG_MANAGED: Final = "openshift-config-managed"
ETCD: Final = "openshift-etcd"
KUBE_APISERVER_OPERATOR: Final = "openshift-kube-apiserver-operator"
CONTROLLER_MANAGER_OPERATOR: Final = "openshift-kube-controller-manager-operator"
MACHINE_CONFIG: Final = "openshift-machine-config-operator"
INFRA: Final = "openshift-infra"
STATIC_PODS: Final = (ETCD, "openshift-kube-apiserver", "openshift-kube-controller-manager", "openshift-kube-scheduler")
"""Namespaces of static pods, which use the host's network and files and start before any admission."""
OTHERS: Final = (
    CONFIG,
    CONFIG_MANAGED,
    KUBE_APISERVER_OPERATOR,
    CONTROLLER_MANAGER_OPERATOR,
    MACHINE_CONFIG,
    INFRA,
    "openshift-cluster-version",
    "openshift-node",
)
_PRIVILEGED: Final[Mapping[str, str]] = {
    # Run level 0 exempts a namespace from OpenShift's own admission (SCC, quotas).
    "openshift.io/run-level": "0",
    "pod-security.kubernetes.io/enforce": "privileged",
    "pod-security.kubernetes.io/audit": "privileged",
    "pod-security.kubernetes.io/warn": "privileged",
}
_NONE: Final[Mapping[str, str]] = {}
_ANNOTATIONS: Final[Mapping[str, str]] = {
    # The cluster's default node selector could keep pods off the masters.
    "openshift.io/node-selector": "",
    "workload.openshift.io/allowed": "management",
}


def namespaces(_: Inputs) -> list[Object]:
    found = dict.fromkeys(STATIC_PODS, _PRIVILEGED) | dict.fromkeys(OTHERS, _NONE)
    return [
        manifest("v1", "Namespace", head(name, labels=found[name], annotations=_ANNOTATIONS)) for name in sorted(found)
    ]


STAGE: Final = 7
Make = Callable[[Inputs], Sequence[Object]]


@dataclass(frozen=True)
class ManifestFile:
    name: str
    """`05-dns.yaml`: the number gives the order of application."""
    make: Make
    """Returns an empty list if this cluster does not have the file."""
    what: str
    readers: str
    without: str
    by_hand: str
    installer: str

    @property
    def topic(self) -> Topic:
        words = (self.what, self.readers, self.without, self.by_hand, self.installer)
        return Topic(TopicKind.FILE, self.name, STAGE, *words)


def add_objects(tree: AssetTree, name: str, objects: Sequence[Object]) -> None:
    """Write a file of manifests with one document per object."""
    is_secret = any(one["kind"] == "Secret" for one in objects)
    tree.add(f"{layout.MANIFESTS}/{name}", yaml_stream(objects), SECRET_MODE if is_secret else PUBLIC_MODE)


def yaml_stream(objects: Iterable[Object]) -> bytes:
    return b"---\n".join(yaml_bytes(one) for one in objects)
