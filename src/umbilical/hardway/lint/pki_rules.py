"""Rules about certificates and keys: names, trust, users, forms and lifetimes."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from umbilical.checks.check import Doubt
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import cluster_rows
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.lint.clients import MASTERS, identity, may_use, roles_of
from umbilical.hardway.lint.facts import LintFacts, LintRule, Unreadable, rule
from umbilical.hardway.lint.pods import ETCD, KUBE_APISERVER, programs
from umbilical.hardway.lint.trust import chain_faults, serving_pairs, token_key_faults
from umbilical.hardway.lint.tunnel_ends import tunnel_address_faults
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, Asset
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.control_plane_set import PkiKind
from umbilical.pki.pem import BundleError, KeyPair
from umbilical.pki.profiles import Usage
from umbilical.pki.validation import authority_trouble, identifier_trouble, is_signed_by, key_trouble, pair_trouble

NODE_BOOTSTRAPPER: Final = "system:node-bootstrapper"
_SERVICE_ENDINGS: Final = ("", ".default", ".default.svc", ".default.svc.cluster.local")


def _control_plane(facts: LintFacts) -> tuple[ClusterNode, ...]:
    return (facts.cluster.bootstrap, *facts.cluster.masters)


def _etcd_usages(facts: LintFacts) -> Iterator[str]:
    made = {
        layout.certificate(f"etcd-{kind}-{node.id}") for node in _control_plane(facts) for kind in ("serving", "peer")
    }
    used = {program.file(flag) for program in programs(facts, ETCD) for flag in ("cert-file", "peer-cert-file")}
    for path in sorted(made | used):
        missing = {usage.value for usage in Usage} - set(facts.certificates(path)[0].usages)
        if missing:
            yield f"{path} lacks {', '.join(sorted(missing))}"


def _api_names(facts: LintFacts) -> Iterator[str]:
    wanted = _wanted_api_names(facts)
    for pairs in serving_pairs(facts):
        for name in wanted:
            shown = pairs.shown_for(name)
            if not shown.covers(name):
                yield f"{pairs.program.path}: clients that dial {name} get {shown.path}, which does not contain it"


def _wanted_api_names(facts: LintFacts) -> list[str]:
    cluster = facts.cluster
    services = ("kubernetes", "openshift") if cluster.is_openshift else ("kubernetes",)
    names = ["localhost", "127.0.0.1", "::1", cluster.api_name, cluster.internal_api_name]
    names += [f"{service}{ending}" for service in services for ending in _SERVICE_ENDINGS]
    addresses = [cluster.networks.api_vip, cluster.service_ip, *(node.address for node in _control_plane(facts))]
    return names + [str(address) for address in addresses]


def _path_lengths(facts: LintFacts) -> Iterator[str]:
    found = dict(_all_certificates(facts))
    authorities = {path: one for path, one in found.items() if one.is_authority}
    for path, one in authorities.items():
        for above in authorities.values():
            if not one.is_self_issued and above.path_length == 0 and is_signed_by(one, above):
                yield f"{path} is a CA below {above.common_name}, which has path length 0"


def _proxy_names(facts: LintFacts) -> Iterator[str]:
    for server in programs(facts, KUBE_APISERVER):
        allowed = server.pod.flag("requestheader-allowed-names").split(",")
        name = facts.certificates(server.file("proxy-client-cert-file"))[0].common_name
        if name not in allowed:
            yield f"{server.path} allows {', '.join(allowed)}, but its own proxy client is {name}"


def _kubelet_access(facts: LintFacts) -> Iterator[str]:
    for server in programs(facts, KUBE_APISERVER):
        path = server.file("kubelet-client-certificate")
        who = identity(facts.certificates(path)[0])
        if not may_use(facts, who, "nodes/proxy", ("get", "create")):
            yield f"no ClusterRoleBinding allows {who.user} ({path}) to get and create nodes/proxy"


def _identities(facts: LintFacts) -> Iterator[str]:
    for row_id, name, group in (
        ("admin-kubeconfig-client", "system:admin", MASTERS),
        ("kube-control-plane-kube-controller-manager-client", "system:kube-controller-manager", ""),
        ("kube-control-plane-kube-scheduler-client", "system:kube-scheduler", ""),
    ):
        who = identity(facts.certificate(row_id))
        if who.user != name:
            yield f"{layout.certificate(row_id)} has the user {who.user}, not {name}"
        if group and group not in who.groups:
            yield f"{layout.certificate(row_id)} lacks the group {group}"
    newcomer = identity(facts.certificate("kubelet-client"))
    if NODE_BOOTSTRAPPER not in roles_of(facts, newcomer):
        yield f"no ClusterRoleBinding binds {newcomer.user} to {NODE_BOOTSTRAPPER}"


def _forms(facts: LintFacts) -> Iterator[str]:
    for asset in facts.below(layout.TLS):
        wanted = SECRET_MODE if asset.path.endswith(".key") else PUBLIC_MODE
        if asset.mode != wanted:
            yield f"{asset.path} has mode {asset.mode:04o}, not {wanted:04o}"
    for row in cluster_rows(facts.cluster):
        pair = KeyPair(facts.content(f"{layout.TLS}/{row.public_file}"), facts.content(layout.key(row.id)))
        trouble = key_trouble(pair) if row.kind is PkiKind.KEY else pair_trouble(pair)
        if not trouble and row.kind is not PkiKind.KEY:
            trouble = _form_trouble(read_certificates(pair.certificate)[0], row.kind)
        if trouble:
            yield f"{row.id}: {trouble}"
    yield from _repeated_serials(facts)


def _form_trouble(certificate: Certificate, kind: PkiKind) -> str:
    if kind is PkiKind.LEAF and certificate.is_authority:
        return "it is a CA, but must be a server or client certificate"
    if "keyUsage" not in certificate.critical or not certificate.key_usages:
        return "it has no critical keyUsage"
    if "basicConstraints" not in certificate.critical:
        return "it has no critical basicConstraints"
    return identifier_trouble(certificate) or (authority_trouble(certificate) if kind is PkiKind.AUTHORITY else "")


def _repeated_serials(facts: LintFacts) -> Iterator[str]:
    serials = Counter((one.issuer, one.serial) for _, one in _all_certificates(facts))
    for (issuer, serial), count in serials.items():
        if count > 1:
            yield f"{count} certificates of {dict(issuer).get('CN')} have the serial {serial:x}"


def _lives(facts: LintFacts) -> Iterator[str]:
    budget = facts.cluster.terms.budget_hours
    certificates = dict(_all_certificates(facts))
    for path, one in certificates.items():
        hours = one.time_left(facts.now).total_seconds() / 3600
        if hours <= budget:
            yield f"{path} expires at {one.not_after:%Y-%m-%d %H:%M} UTC, but an installation may take {budget} h"
        if one.not_before > facts.now:
            yield f"{path} is not valid before {one.not_before:%Y-%m-%d %H:%M} UTC"
    for row in cluster_rows(facts.cluster):
        leaf, signer = certificates.get(layout.certificate(row.id)), certificates.get(layout.certificate(row.signer))
        if leaf and signer and signer.not_after < leaf.not_after:
            yield Doubt(f"{layout.certificate(row.id)} expires after its signer {row.signer}")


def _peer_addresses(facts: LintFacts) -> Iterator[str]:
    for node in _control_plane(facts):
        path = layout.certificate(f"etcd-peer-{node.id}")
        if node.address not in facts.certificates(path)[0].ip_addresses:
            yield f"{path} lacks the address {node.address} of {node.id}"
    yield from tunnel_address_faults(facts)


def _all_certificates(facts: LintFacts) -> Iterator[tuple[str, Certificate]]:
    """List all certificates except those in bundles, which are copies."""
    for asset in facts.below(layout.TLS):
        if asset.path.endswith(".crt") and not asset.path.startswith(f"{layout.BUNDLES}/"):
            yield asset.path, _first(asset)


def _first(asset: Asset) -> Certificate:
    try:
        return read_certificates(asset.content)[0]
    except BundleError as error:
        raise Unreadable(f"{asset.path}: {error}") from None


_ROTATE: Final = "umbilical stage rotate NAME"

RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "PKI-01",
        "etcd's certificates have the usages serverAuth and clientAuth",
        "etcd dials its own client port with its serving certificate. With serverAuth alone it logs `certificate "
        "specifies an incompatible key usage` every second, and etcdctl reports it unhealthy although /health is true.",
        _ROTATE,
        _etcd_usages,
    ),
    rule(
        "PKI-02",
        "kube-apiserver's certificates contain every name and address that clients dial",
        "A client that dials another name rejects the certificate: the version operator (localhost), pods (the first "
        "address of the service network), kubelets (api-int), probes (a node's address).",
        "umbilical stage plan shows what differs; --tls-sni-cert-key decides which name gets which certificate",
        _api_names,
    ),
    rule(
        "PKI-03",
        "each certificate verifies with the CA file and the purpose that its peers use",
        "Go accepts an intermediate as trust anchor, OpenSSL and Python do not: kubectl works, but curl fails.",
        "openssl verify -x509_strict -purpose sslserver -CAfile BUNDLE CERTIFICATE",
        chain_faults,
    ),
    rule(
        "PKI-04",
        "no CA is signed by a CA with path length 0",
        "Peers reject everything that such a CA signs: path length constraint exceeded.",
        "make every signer self-signed",
        _path_lengths,
    ),
    rule(
        "PKI-05",
        "--requestheader-allowed-names contains the proxy client's name",
        "Aggregated API servers do not accept user names from kube-apiserver, and return Unauthorized.",
        "set --requestheader-allowed-names to the common name of --proxy-client-cert-file",
        _proxy_names,
    ),
    rule(
        "PKI-06",
        "kube-apiserver may use nodes/proxy",
        "kubectl logs and exec get Forbidden (user=system:kube-apiserver, resource=nodes, subresource=proxy).",
        "bind its user to system:kubelet-api-admin, or to its own role",
        _kubelet_access,
    ),
    rule(
        "PKI-07",
        "administrator, controller-manager, scheduler and new nodes have the users and groups of their roles",
        "Kubernetes reads users and groups from certificates: with a wrong name clients get Forbidden, and new nodes "
        "create no CSR.",
        _ROTATE,
        _identities,
    ),
    rule(
        "PKI-08",
        "keys have mode 0600 and match their certificates, which have all extensions that strict programs need",
        "Other users must not be able to read keys. Python 3.13 rejects certificates without key identifiers, critical "
        "basicConstraints or keyUsage.",
        _ROTATE,
        _forms,
    ),
    rule(
        "PKI-09",
        "no certificate expires during an installation",
        "Some certificates are valid for two days. If one expires, the installation stops without a clear error.",
        "umbilical stage rotate --due",
        _lives,
    ),
    rule(
        "PKI-11",
        "kube-apiserver can verify all service account tokens, and signs with its own key",
        "Without the public key every token of that key gets Unauthorized: all pods, or all controllers. With one key "
        "for both kinds of tokens they cannot be rotated separately, and OpenShift's operators take over two keys.",
        "add each signing key's .pub file to --service-account-key-file",
        token_key_faults,
    ),
    rule(
        "PKI-12",
        "the certificates of etcd peers and of the tunnel's server contain the addresses that are dialled",
        "Peers reject the etcd member, and agents never connect: certificate is valid for ..., not the address.",
        _ROTATE,
        _peer_addresses,
    ),
)
