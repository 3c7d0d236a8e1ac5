"""Rules about kubeconfigs: all exist, can verify the API, and the API accepts their certificates."""

import posixpath
from collections.abc import Iterator
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.kubeconfigs import cluster_kubeconfigs
from umbilical.hardway.config.cluster import API_PORT
from umbilical.hardway.lint.clients import ResolvedKubeconfig, identity, read
from umbilical.hardway.lint.facts import LintFacts, LintRule, Unreadable, rule
from umbilical.hardway.lint.pods import (
    CONTROLLER_MANAGER,
    KUBE_APISERVER,
    SCHEDULER,
    VERSION_OPERATOR,
    ProgramPod,
    programs,
)
from umbilical.hardway.lint.trust import ServingPairs, serving_pairs
from umbilical.manifests.tree import SECRET_MODE
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError
from umbilical.pki.profiles import Usage
from umbilical.pki.validation import chain_trouble, pair_trouble

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# User names in kubeconfigs that are shorter than in the certificate.
_SHORT_NAMES: Final = {"admin": "system:admin"}


def _faults(facts: LintFacts) -> Iterator[str]:
    wanted = {layout.kubeconfig(one.name) for one in cluster_kubeconfigs(facts.cluster)}
    there = {asset.path for asset in facts.below(layout.AUTH) if asset.path.endswith(".kubeconfig")}
    yield from (f"{path} is missing" for path in sorted(wanted - there))
    yield from (f"{path} is not a kubeconfig of this cluster" for path in sorted(there - wanted))
    servers = serving_pairs(facts)
    trusted = [facts.certificates(one.file("client-ca-file")) for one in programs(facts, KUBE_APISERVER)]
    for path in sorted(there & wanted):
        found = read(facts, path)
        if facts.assets[path].mode != SECRET_MODE:
            yield f"{path} has mode {facts.assets[path].mode:04o}, but contains a key"
        yield from (f"{path}: {trouble}" for trouble in _server_troubles(facts, found, servers))
        yield from (f"{path}: {trouble}" for trouble in _client_troubles(facts, found, trusted))


def _server_troubles(facts: LintFacts, found: ResolvedKubeconfig, servers: list[ServingPairs]) -> Iterator[str]:
    if found.port != API_PORT:
        yield f"its server has port {found.port}, not {API_PORT}"
    authority = _certificates(found.path, found.authority)
    for server in servers:
        shown = server.shown_for(found.host)
        if not shown.covers(found.host):
            yield f"{found.host} is not in {shown.path}, the API's certificate for this name"
        trouble = chain_trouble(shown.certificate, authority, Usage.SERVER, facts.now)
        if trouble:
            yield f"its CA does not verify {shown.path}: {trouble}"


def _client_troubles(facts: LintFacts, found: ResolvedKubeconfig, trusted: list[list[Certificate]]) -> Iterator[str]:
    trouble = pair_trouble(found.pair)
    if trouble:
        yield trouble
        return
    certificate = _certificates(found.path, found.pair.certificate)[0]
    wanted = _SHORT_NAMES.get(found.user, found.user)
    if identity(certificate).user != wanted:
        yield f"its user is {found.user}, but its certificate has {certificate.common_name}"
    for bundle in trusted:
        refusal = chain_trouble(certificate, bundle, Usage.CLIENT, facts.now)
        if refusal:
            yield f"kube-apiserver rejects its certificate: {refusal}"


def _localities(facts: LintFacts) -> Iterator[str]:
    for program in _own_clients(facts):
        for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"):
            for path in program.values(flag):
                found = read(facts, program.artifact(path))
                if found.host not in LOCAL:
                    yield f"{program.path} has --{flag}={posixpath.basename(path)} with the server {found.host}"


def _own_clients(facts: LintFacts) -> Iterator[ProgramPod]:
    """List the programs that must use the kube-apiserver of their own node."""
    yield from programs(facts, CONTROLLER_MANAGER)
    yield from programs(facts, SCHEDULER)
    if facts.cluster.is_openshift:
        yield from programs(facts, VERSION_OPERATOR)


def _certificates(path: str, pem: bytes) -> list[Certificate]:
    try:
        return read_certificates(pem)
    except BundleError as error:
        raise Unreadable(f"{path}: {error}") from None


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "KC-01",
        "all kubeconfigs exist, use a name in the API's certificate, and have a certificate that the API accepts",
        "A wrong kubeconfig is noticed only when it is used, often hours later: the client reports x509 errors, or the "
        "API returns Unauthorized.",
        "umbilical stage plan shows how they differ from the rendered ones",
        _faults,
    ),
    rule(
        "KC-02",
        "controller-manager, scheduler and version operator use the kube-apiserver of their own node",
        "The load balancer sends their requests to any node, and needs a ready server first: on the bootstrap node "
        "nothing would start.",
        "use a kubeconfig with the server https://localhost:6443",
        _localities,
    ),
)
