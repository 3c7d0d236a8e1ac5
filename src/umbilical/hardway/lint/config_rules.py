"""Rules about cluster.yaml: valid DNS names, networks that do not overlap, one name for each node."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Final

from umbilical.checks.check import Doubt
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.places import NETWORK, REVERSE_ZONE, ZONE
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, rule
from umbilical.hardway.lint.host_facts import balancers, libvirt, xml, zone_records
from umbilical.hardway.lint.node_reading import commands
from umbilical.manifests.objects import IpAddress

HOSTNAME = "/etc/hostname"


def name_faults(facts: LintFacts) -> Iterator[str]:
    names = [node.name for node in facts.cluster.nodes]
    if len(set(names)) < len(names):
        yield "two nodes have the same name"
    for node in facts.cluster.nodes:
        yield from _on_node(facts, node)
    yield from _in_balancer(facts)
    yield from _in_zones(facts)
    if libvirt(facts) is None:
        yield from _in_network(facts)
    yield from _in_certificates(facts)


def _on_node(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    written = facts.node_file(node, HOSTNAME).decode(errors="replace").strip()
    if written != node.name:
        yield f"{layout.ignition(node)}: {HOSTNAME} is {written}, not {node.name}"
    for unit in facts.ignition(node).units:
        for command in commands(unit):
            # The common name of a kubelet's CSR.
            given = command.flags.get("hostname-override", node.name)
            if given != node.name:
                yield f"{layout.ignition(node)}: --hostname-override of {unit.name} is {given}, not {node.name}"


def _in_balancer(facts: LintFacts) -> Iterator[str]:
    names = {str(node.address): node.name for node in facts.cluster.nodes}
    for path, balancer in balancers(facts).items():
        for section in balancer.of_kind("backend", "listen"):
            for server in balancer.servers(section):
                if server.name != names.get(server.address):
                    yield f"{path}: server {server.address} is named {server.name}, not {names.get(server.address)}"


def _in_zones(facts: LintFacts) -> Iterator[str]:
    forward = {(name, value) for name, kind, value in zone_records(facts, ZONE) if kind in ("A", "AAAA")}
    backward = {(name, value) for name, kind, value in zone_records(facts, REVERSE_ZONE) if kind == "PTR"}
    for node in facts.cluster.nodes:
        if (node.name, str(node.address)) not in forward:
            yield f"{ZONE} has no record {node.name} for {node.address}"
        if (node.address.reverse_pointer, node.name) not in backward:
            yield f"{REVERSE_ZONE} has no record {node.address} for {node.name}"


def _in_network(facts: LintFacts) -> Iterator[str]:
    """Check the first name of each host, which is the result of a reverse lookup."""
    first = {host.attrib.get("ip"): host.findtext("hostname") for host in xml(facts, NETWORK).findall("dns/host")}
    for node in facts.cluster.nodes:
        if first.get(str(node.address)) != node.name:
            yield f"{NETWORK}: the first name of {node.address} is {first.get(str(node.address))}, not {node.name}"


def _in_certificates(facts: LintFacts) -> Iterator[str]:
    for node in (facts.cluster.bootstrap, *facts.cluster.masters):
        for kind in ("peer", "serving"):
            path = layout.certificate(f"etcd-{kind}-{node.id}")
            if node.name not in facts.certificates(path)[0].dns_names:
                yield f"{path} does not contain {node.name}"


LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123."""
MAX_INTERFACE: Final = 15
"""Linux's IFNAMSIZ without the final zero byte."""
MAX_NAME: Final = 63
"""Maximum length of a label's value; a node's name is one (kubernetes.io/hostname)."""
MAX_DOMAIN: Final = 253
MASTER_COUNTS: Final = (1, 3, 5)
MAX_PODS: Final = {True: 250, False: 110}
"""Default maximum of pods per node, by whether it is OpenShift."""
TAKEN: Final = 3
"""Addresses of a node's CIDR that no pod gets: the network's, the bridge's, and the last one."""


def _names(facts: LintFacts) -> Iterator[str]:
    cluster = facts.cluster
    if not LABEL.fullmatch(cluster.name):
        yield f"name {cluster.name!r} is not a DNS label"
    labels = cluster.base_domain.split(".")
    if not all(LABEL.fullmatch(label) for label in labels) or len(cluster.domain) > MAX_DOMAIN:
        yield f"baseDomain {cluster.base_domain!r} is not a DNS name"
    if cluster.libvirt is not None and not 0 < len(cluster.libvirt.bridge) <= MAX_INTERFACE:
        yield f"libvirt.bridge {cluster.libvirt.bridge} is longer than {MAX_INTERFACE} characters"
    for node in cluster.nodes:
        if len(node.name) > MAX_NAME:
            yield f"{node.name} is longer than {MAX_NAME} characters, the maximum of a label value"


def _networks(facts: LintFacts) -> Iterator[str]:
    networks = facts.cluster.networks
    ranges = (("machine", networks.machine), ("pods", networks.pods), ("services", networks.services))
    for (name, one), (other_name, other) in combinations(ranges, 2):
        if one.version == other.version and one.overlaps(other):
            yield f"networks.{name} {one} and networks.{other_name} {other} overlap"
    yield from _places(facts)
    yield from _dynamic(facts)


def _fixed(facts: LintFacts) -> list[tuple[str, IpAddress]]:
    networks = facts.cluster.networks
    vips = [("networks.apiVip", networks.api_vip), ("networks.ingressVip", networks.ingress_vip)]
    nodes = [(node.id, node.address) for node in facts.cluster.nodes]
    return [("networks.gateway", networks.gateway), *vips, *nodes]


def _places(facts: LintFacts) -> Iterator[str]:
    """Find duplicate addresses, and those outside the machine network."""
    networks = facts.cluster.networks
    owners: dict[IpAddress, str] = {}
    for name, address in _fixed(facts):
        if address not in networks.machine:
            yield f"{name} {address} is outside networks.machine {networks.machine}"
        elif networks.machine.version == 4 and address in (networks.machine[0], networks.machine[-1]):
            yield f"{name} {address} is the network address or the broadcast address of networks.machine"
        if address in owners:
            yield f"{name} and {owners[address]} have the same address {address}"
        owners.setdefault(address, name)
    # The DNS server may be the gateway, but not a node or a VIP.
    owner = owners.get(networks.dns)
    if owner is not None and networks.dns != networks.gateway:
        yield f"networks.dns and {owner} have the same address {networks.dns}"


def _dynamic(facts: LintFacts) -> Iterator[str]:
    networks, pool = facts.cluster.networks, facts.cluster.networks.dhcp
    if pool is None:
        return
    if pool.first not in networks.machine or pool.last not in networks.machine or int(pool.first) > int(pool.last):
        yield f"networks.dhcp {pool.first} to {pool.last} is not a range of networks.machine {networks.machine}"
    for name, address in _fixed(facts):
        if int(pool.first) <= int(address) <= int(pool.last):
            yield f"{name} {address} is in the range of networks.dhcp, which may assign it to another machine"


def _pieces(facts: LintFacts) -> Iterator[str]:
    cluster, networks = facts.cluster, facts.cluster.networks
    pods, prefix = networks.pods, networks.host_prefix
    if not pods.prefixlen < prefix <= pods.max_prefixlen:
        yield f"networks.hostPrefix {prefix} does not divide networks.pods {pods}"
        return
    room, wanted = 2 ** (pods.max_prefixlen - prefix) - TAKEN, MAX_PODS[cluster.is_openshift]
    if room < wanted:
        yield f"networks.hostPrefix {prefix} allows {max(room, 0)} pods per node, but a node may have {wanted}"
    count = 2 ** (prefix - pods.prefixlen)
    if count < len(cluster.members):
        yield f"networks.pods {pods} has {count} CIDRs of /{prefix}, for {len(cluster.members)} nodes"
    given = [node.pod_network for node in cluster.members if node.pod_network is not None]
    for piece in given:
        if piece.network_address not in pods or piece.prefixlen < pods.prefixlen:
            yield f"the pod CIDR {piece} is not in networks.pods {pods}"
    if len(set(given)) < len(given):
        yield "two nodes have the same pod CIDR"


def _counts(facts: LintFacts) -> Iterator[str]:
    bootstraps = [node.id for node in facts.cluster.nodes if node.role is NodeRole.BOOTSTRAP]
    if len(bootstraps) != 1:
        yield f"there are {len(bootstraps)} bootstrap nodes"
    count = len(facts.cluster.masters)
    if count in MASTER_COUNTS:
        return
    fault = f"{count} masters: supported are {', '.join(map(str, MASTER_COUNTS))}"
    if count and count % 2 == 0:
        yield Doubt(f"{fault}; an even number tolerates no more failures than one master less")
    else:
        yield fault


def _exposed(facts: LintFacts) -> Iterator[str]:
    for path in facts.exposed or ():
        yield f"{path} is in a git work tree and not ignored"


def _disk(facts: LintFacts) -> str | None:
    return "no directory was checked" if facts.exposed is None else None


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "CFG-01",
        "names are valid for DNS, Linux and Kubernetes",
        "Linux does not allow a bridge name of 16 characters, certificates allow no underscore, and a node with a name "
        "of more than 63 characters cannot register, because its name is also a label.",
        "change name, baseDomain or libvirt.bridge in cluster.yaml",
        _names,
    ),
    rule(
        "CFG-02",
        "networks do not overlap, and no address is used twice",
        "With overlapping networks packets go to the wrong one; DHCP may assign an address in its range to a second "
        "machine; if a VIP is also a node's address, two machines answer for it.",
        "change networks or nodes in cluster.yaml; `umbilical config view --origin` shows every address",
        _networks,
    ),
    rule(
        "CFG-03",
        "the pod network has a CIDR for every node with enough addresses",
        "A node without a pod CIDR stays NotReady; if the CIDR is too small, pods wait for an address without end.",
        "change networks.pods or networks.hostPrefix in cluster.yaml",
        _pieces,
    ),
    rule(
        "CFG-04",
        "there is one bootstrap node, and an odd number of masters",
        "etcd needs more than half of its members: a fourth master can fail too, but tolerates no additional failure. "
        "The etcd operator supports 1, 3 and 5 masters.",
        "change nodes.masters.count in cluster.yaml",
        _counts,
        profiles=OPENSHIFT,
    ),
    rule(
        "CFG-06",
        "a node has the same name everywhere",
        "Host name, Node object, CSRs, certificates, DNS and load balancer must use one name. If one differs, the "
        "node's CSR is denied, or its etcd member is rejected.",
        "render the files again: umbilical stage run 02..08",
        name_faults,
    ),
    rule(
        "CFG-07",
        "git ignores keys, kubeconfigs and the pull secret",
        "A committed file stays in the history, and the administrator's key gives full control of the cluster.",
        "printf '%s\\n' artifacts .umbilical pull-secret.json >> .gitignore; git rm -r --cached artifacts",
        _exposed,
        _disk,
    ),
)
