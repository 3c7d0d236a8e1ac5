"""Objects that certificates and keys travel in, as OpenShift's operators look for them; and the shorter heads."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from umbilical.manifests.objects import Object, config_map, manifest, secret
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
    """Metadata; `more` is labels and annotations."""
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, **{key: dict(value) for key, value in more.items() if value}}


def timestamp(moment: Moment) -> str:
    """RFC 3339, as Go writes whole seconds in UTC."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def certificate_annotations(pem: bytes) -> dict[str, str]:
    """Tell an operator how long a certificate is good. Without these it makes a new one at once."""
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
    """One rule of a role."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs), **more}


def cluster_role_binding(name: str, role: str, *subjects: Object) -> Object:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    return manifest(f"{RBAC}/v1", "ClusterRoleBinding", head(name), roleRef=reference, subjects=list(subjects))
