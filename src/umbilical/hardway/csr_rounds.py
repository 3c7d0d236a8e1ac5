"""Approve the kubelets' certificate signing requests while nodes come up, and report refused ones with the reason."""

import base64
import binascii
import hashlib
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from umbilical.cluster import csr
from umbilical.cluster.csr import EVERYBODY, ExpectedNode, Policy
from umbilical.hardway import kube
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.pivot_conditions import KUBELET_PAIR
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, ConditionProbe
from umbilical.hardway.stages.live import started_key
from umbilical.hardway.waiting import KnownFailure
from umbilical.host.waiting import NotYet
from umbilical.pki.certificate import read_certificates

KUBELET_PORT: Final = 10250
DIAL_SECONDS: Final = 10.0
_NO_PROGRAM: Final = 127
KNOWN_FAILURES: Final = (
    KnownFailure(
        "is not the one on the node",
        "another machine requested a certificate for this node name and has access now: kubectl delete node NAME, "
        "umbilical stage rotate kubelet-client, then rebuild the cluster",
    ),
    KnownFailure(
        "exists already|certificate already|outside of the node's boot",
        "if the node itself sent this second request: umbilical stage run --allow-reissue NAME",
    ),
    KnownFailure(
        "is expected", "its host name differs from the config: /etc/hostname and the PTR record must match it"
    ),
    KnownFailure(
        "is not registered", "umbilical stage logs NODE kubelet; check that api-int resolves and that the VIP answers"
    ),
    KnownFailure(f":{KUBELET_PORT}: .*refused", "its kubelet does not run: umbilical stage logs NODE kubelet"),
)


def policy(site: Site) -> Policy:
    """Expect requests of the started members, with the user and groups of the bootstrap certificate."""
    bootstrapper = read_certificates(site.content(layout.certificate("kubelet-client")))[0]
    groups = [value for kind, value in bootstrapper.subject if kind == "O"]
    return Policy(
        nodes={node.name: _expected(site, node) for node in site.cluster.members if started_key(node) in site.notes},
        bootstrap_user=bootstrapper.common_name,
        bootstrap_groups=frozenset({*groups, EVERYBODY}),
        reissue=site.reissue,
    )


def _expected(site: Site, node: ClusterNode) -> ExpectedNode:
    started = datetime.fromisoformat(site.notes[started_key(node)])
    return ExpectedNode(node.name, frozenset({str(node.address)}), started - timedelta(seconds=1))


def approve_once(site: Site) -> csr.CsrRound:
    """Approve what the policy allows, and report it; the caller reports refused requests."""
    now = site.now()
    known = [node.name for node in site.cluster.members if _first(site, node)]
    found = site.api().call(lambda client: csr.approve_pending(client, policy(site), now, known))
    names = {node.name: node for node in site.cluster.members}
    for decision in found.approved:
        if decision.first_key:
            node = names[decision.node]
            site.notes[_first_name(node)] = {"started": site.notes[started_key(node)], "key": decision.first_key}
            # --allow-reissue is for one request only: others may know the bootstrap identity too.
            site.reissue -= {node.name}
        site.reporter.saw(f"approved {decision.csr}: {decision.reason}")
    return found


def _first_name(node: ClusterNode) -> str:
    return f"first-certificate:{node.id}"


def _first(site: Site, node: ClusterNode) -> Mapping[str, str]:
    """Return the note on a node's first certificate in this boot; empty if it has none."""
    noted: Mapping[str, str] = site.notes.get(_first_name(node)) or {}
    return noted if noted.get("started") == site.notes.get(started_key(node)) else {}


def approving_condition(nodes: Sequence[ClusterNode]) -> Condition:
    """Also approves requests while it probes: the two requests of a node come one after the other."""

    def probe(site: Site) -> str:
        refused = approve_once(site).refused
        known = kube.nodes(site)
        try:
            for node in nodes:
                kube.registered(known, node)
                check_holder(site, node)
                check_serving(site, node)
        except NotYet as error:
            told = "; ".join(f"{one.csr} was refused: {one.reason}" for one in refused)
            raise NotYet(f"{error}; {told}" if told else str(error)) from None
        return ", ".join(node.name for node in nodes)

    return _condition(nodes, probe)


def registered_condition(nodes: Sequence[ClusterNode]) -> Condition:
    """The same condition without approving anything."""

    def probe(site: Site) -> str:
        known = kube.nodes(site)
        for node in nodes:
            kube.registered(known, node)
            check_serving(site, node)
        return ", ".join(node.name for node in nodes)

    return _condition(nodes, probe)


def _condition(nodes: Sequence[ClusterNode], probe: ConditionProbe) -> Condition:
    why = "logs, exec and port-forward need the serving certificate, everything else the client's"
    fix = "kubectl get csr; umbilical stage doctor names the rule that refused a request"
    title = "every kubelet has its two certificates and is registered under its name and address"
    name = f"registered-{nodes[0].role.value}s" if nodes else "registered"
    return Condition(name, title, why, fix, probe, KNOWN_FAILURES)


def check_serving(site: Site, node: ClusterNode) -> None:
    """Verify a kubelet's serving certificate as kube-apiserver does. Raises NotYet: not served, or not trusted."""
    authority = site.content(layout.bundle(Bundle.KUBELET_CA.value)).decode()
    context = ssl.create_default_context(cadata=authority)
    address = ipaddress.ip_address(str(node.address))
    try:
        with (
            socket.create_connection((str(address), KUBELET_PORT), DIAL_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=str(address)),
        ):
            return
    except OSError as error:
        raise NotYet(f"{node.name}:{KUBELET_PORT}: {error}") from None


def check_holder(site: Site, node: ClusterNode) -> None:
    """Check that the first approved certificate is on the node itself.

    A kubelet keeps a new key in memory until the certificate is issued, so this cannot be checked earlier. It detects
    another machine that used the bootstrap identity to request a certificate in the node's name.

    Raises NotYet: the node has no certificate, or another one.
    """
    noted = _first(site, node)
    if not noted or noted.get("seen"):
        return
    done = site.machines.run(node.id, ["openssl", "x509", "-in", KUBELET_PAIR, "-noout", "-pubkey"])
    if done.exit_code == _NO_PROGRAM:
        return
    if done.exit_code != 0:
        raise NotYet(f"{node.id} has no certificate: {done.complaint}")
    if _key_hash(done.text) != noted["key"]:
        raise NotYet(f"the certificate that was approved for {node.name} is not the one on the node")
    # Only once: renewals have new keys.
    site.notes[_first_name(node)] = {**noted, "seen": "yes"}


def _key_hash(pem: str) -> str:
    body = "".join(line for line in pem.splitlines() if not line.startswith("-----"))
    try:
        return hashlib.sha256(base64.b64decode(body, validate=True)).hexdigest()
    except binascii.Error:
        return ""
