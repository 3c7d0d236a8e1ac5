"""What kube-apiserver and the server read: certificates as Secrets with HyperShift's names and keys, the CA bundle, the
egress selector, the agents' identities; and all of it as files for a static pod, which cannot use Secrets.
"""

import hashlib
import posixpath
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.forms import metadata
from umbilical.hosted.objects.names import TMP_VOLUME
from umbilical.hosted.objects.spec import HostedSpec, IpAddress
from umbilical.hosted.pki.certificate_set import HostedSet, authority_hash
from umbilical.hosted.pki.table import AGENT, CLIENT, CLUSTER, CONTROL_PLANE_AGENT, SERVER, HostedLeaf, Trust
from umbilical.manifests.objects import Object, config_map, secret
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree, yaml_bytes
from umbilical.pki.pem import encode_blocks


def management_certificates(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    leaves = [SERVER, CLUSTER, CLIENT, *([CONTROL_PLANE_AGENT] if spec.known_addresses else [])]
    return [
        authority_config_map(spec, certificates),
        *(leaf_secret(spec, certificates, leaf, spec.namespace) for leaf in leaves),
        *(_signer_secrets(spec, certificates) if spec.pki.signers_in_cluster else []),
    ]


def hosted_certificates(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    """Return only what agents on nodes need: the tenant can read it."""
    head = metadata(spec, names.CA_BUNDLE, names.HOSTED_NAMESPACE)
    return [
        config_map(head, {names.CA_KEY: certificates.trusted_by(Trust.AGENTS).decode()}),
        leaf_secret(spec, certificates, AGENT, names.HOSTED_NAMESPACE),
    ]


def authorities(certificates: HostedSet) -> dict[str, bytes]:
    """Return the CA bundles of the management cluster's ConfigMap, by key: one for each side of each listener."""
    return {
        names.CA_KEY: certificates.trusted_by(Trust.CLIENTS),
        names.CLUSTER_CA_KEY: certificates.trusted_by(Trust.AGENTS),
        names.CLIENT_CA_KEY: certificates.trusted_by(Trust.FRONTEND),
        names.AGENT_CA_KEY: certificates.trusted_by(Trust.AGENT_LISTENER),
    }


def authority_config_map(spec: HostedSpec, certificates: HostedSet) -> Object:
    head = metadata(spec, names.CA_BUNDLE, spec.namespace)
    return config_map(head, {key: bundle.decode() for key, bundle in authorities(certificates).items()})


def leaf_secret(spec: HostedSpec, certificates: HostedSet, leaf: HostedLeaf, namespace: str) -> Object:
    pair, issuer = certificates.leaves[leaf.id], certificates.issuer_of(leaf)
    annotations = {names.CA_HASH_ANNOTATION: authority_hash(issuer)}
    data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": encode_blocks([issuer.encoded])}
    return secret(metadata(spec, leaf.id, namespace, annotations=annotations), data)


def fingerprint(certificates: HostedSet, leaf: HostedLeaf) -> str:
    """Hash an agent's certificate and its CA bundle."""
    content = certificates.leaves[leaf.id].certificate + certificates.trusted_by(Trust.AGENTS)
    return hashlib.sha256(content).hexdigest()


def _signer_secrets(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    """Use both pairs of keys, as HyperShift does."""
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


def egress_selector(spec: HostedSpec, url: str = "") -> Object:
    """`url` replaces the Service's URL: a static pod cannot resolve names of Services."""
    tls = {
        "caBundle": f"{names.CLIENT_CA_DIRECTORY}/{names.CA_KEY}",
        "clientCert": f"{names.CLIENT_PAIR_DIRECTORY}/tls.crt",
        "clientKey": f"{names.CLIENT_PAIR_DIRECTORY}/tls.key",
    }
    tcp = {"url": url or spec.frontend_url, "tlsConfig": tls}
    direct = {"proxyProtocol": "Direct"}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {"name": "controlplane", "connection": dict(direct)},
            {"name": "etcd", "connection": dict(direct)},
            # Not SOCKS: HyperShift tried it, and SPDY upgrades failed.
            {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": {"tcp": tcp}}},
        ],
    }


def egress_config_map(spec: HostedSpec) -> Object:
    head = metadata(spec, names.EGRESS_CONFIG_MAP, spec.namespace)
    return config_map(head, {names.EGRESS_KEY: yaml_bytes(egress_selector(spec)).decode()})


def identifier(address: IpAddress) -> str:
    """HyperShift writes `ipv4=` for IPv6 addresses too; servers read only the address."""
    return f"ipv{address.version}={address}"


def identities_text(spec: HostedSpec) -> str:
    """Without it any node's agent could claim the address of an aggregated API and get its traffic."""
    lines = [f"CN={names.CN_AGENT} default-route=true"]
    if spec.known_addresses:
        allowed = " ".join(identifier(address) for address in spec.known_addresses)
        lines.append(f"CN={names.CN_CONTROL_PLANE_AGENT} {allowed}")
    return "".join(f"{line}\n" for line in lines)


def identities_config_map(spec: HostedSpec) -> Object:
    head = metadata(spec, names.IDENTITIES_CONFIG_MAP, spec.namespace)
    return config_map(head, {names.IDENTITIES_KEY: identities_text(spec)})


DIRECTORY: Final = "/etc/kubernetes/konnectivity"
LOCAL_URL: Final = f"https://127.0.0.1:{names.FRONTEND_PORT}"
"""The server in the same pod: with the node's network, names of Services do not resolve."""
_FOLDERS: Final = {
    "cluster-certs": "cluster",
    "server-certs": "server",
    "konnectivity-client": "client",
    "konnectivity-ca": "ca",
    "egress-selector-config": "egress-selector",
}
_PAIRS: Final = {"cluster": CLUSTER, "server": SERVER, "client": CLIENT}
_IDENTITIES: Final = "identities"


def static_volumes(spec: HostedSpec) -> list[Object]:
    folders = {**_FOLDERS, "agent-identities": _IDENTITIES} if spec.is_ours else _FOLDERS
    return [
        *({"name": name, "hostPath": {"path": _path(folder), "type": "Directory"}} for name, folder in folders.items()),
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]


def add_static_files(tree: AssetTree, root: str, spec: HostedSpec, certificates: HostedSet) -> None:
    """Add the files below `root`, the root directory of the node."""
    for folder, leaf in _PAIRS.items():
        pair = certificates.leaves[leaf.id]
        tree.add(root + _path(folder, "tls.crt"), pair.certificate, PUBLIC_MODE)
        tree.add(root + _path(folder, "tls.key"), pair.key, SECRET_MODE)
    for key, bundle in authorities(certificates).items():
        tree.add(root + _path("ca", key), bundle, PUBLIC_MODE)
    egress = yaml_bytes(egress_selector(spec, LOCAL_URL))
    tree.add(root + _path("egress-selector", names.EGRESS_KEY), egress, PUBLIC_MODE)
    if spec.is_ours:
        tree.add(root + _path(_IDENTITIES, names.IDENTITIES_KEY), identities_text(spec).encode(), PUBLIC_MODE)


def _path(*parts: str) -> str:
    return posixpath.join(DIRECTORY, *parts)
