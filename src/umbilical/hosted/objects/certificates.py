"""Certificates as objects of both clusters: Secrets with HyperShift's names and keys, and one ConfigMap to trust by."""

import hashlib

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.hosted.pki.certificate_set import HostedSet, authority_hash
from umbilical.hosted.pki.table import AGENT, CLIENT, CLUSTER, CONTROL_PLANE_AGENT, SERVER, Leaf, Trust
from umbilical.manifests.objects import Object, config_map, secret
from umbilical.pki.pem import encode_blocks


def management_certificates(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    leaves = [SERVER, CLUSTER, CLIENT, *([CONTROL_PLANE_AGENT] if spec.known_addresses else [])]
    return [
        authority_config_map(spec, certificates),
        *(leaf_secret(spec, certificates, leaf, spec.namespace) for leaf in leaves),
        *(_signer_secrets(spec, certificates) if spec.pki.signers_in_cluster else []),
    ]


def hosted_certificates(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    """What agents on nodes need, and nothing more: the tenant can read it."""
    head = metadata(spec, names.CA_BUNDLE, names.HOSTED_NAMESPACE)
    return [
        config_map(head, {names.CA_KEY: certificates.trusted_by(Trust.AGENTS).decode()}),
        leaf_secret(spec, certificates, AGENT, names.HOSTED_NAMESPACE),
    ]


def authorities(certificates: HostedSet) -> dict[str, bytes]:
    """Every bundle of the management cluster's ConfigMap, by its key: one for each side of each listener."""
    return {
        names.CA_KEY: certificates.trusted_by(Trust.CLIENTS),
        names.CLUSTER_CA_KEY: certificates.trusted_by(Trust.AGENTS),
        names.CLIENT_CA_KEY: certificates.trusted_by(Trust.FRONTEND),
        names.AGENT_CA_KEY: certificates.trusted_by(Trust.AGENT_LISTENER),
    }


def authority_config_map(spec: HostedSpec, certificates: HostedSet) -> Object:
    head = metadata(spec, names.CA_BUNDLE, spec.namespace)
    return config_map(head, {key: bundle.decode() for key, bundle in authorities(certificates).items()})


def leaf_secret(spec: HostedSpec, certificates: HostedSet, leaf: Leaf, namespace: str) -> Object:
    pair, issuer = certificates.leaves[leaf.id], certificates.issuer_of(leaf)
    annotations = {names.CA_HASH_ANNOTATION: authority_hash(issuer)}
    data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": encode_blocks([issuer.encoded])}
    return secret(metadata(spec, leaf.id, namespace, annotations=annotations), data)


def fingerprint(certificates: HostedSet, leaf: Leaf) -> str:
    """Name what an agent begins with: its own certificate, and whom it trusts."""
    content = certificates.leaves[leaf.id].certificate + certificates.trusted_by(Trust.AGENTS)
    return hashlib.sha256(content).hexdigest()


def _signer_secrets(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    """Under both pairs of names, as HyperShift's are read by either."""
    return [
        secret(
            metadata(spec, id_, spec.namespace),
            {
                "ca.crt": state.pair.certificate,
                "ca.key": state.pair.key,
                "tls.crt": state.pair.certificate,
                "tls.key": state.pair.key,
            },
        )
        for id_, state in certificates.signers.items()
    ]
