"""Where a node's name stands in the artifacts: all of them must say the same."""

from collections.abc import Iterator

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.places import NETWORK, REVERSE_ZONE, ZONE
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.lint.host_facts import balancers, libvirt, xml, zone_records
from umbilical.hardway.lint.unit_text import commands

HOSTNAME = "/etc/hostname"


def name_faults(facts: Facts) -> Iterator[str]:
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


def _on_node(facts: Facts, node: Node) -> Iterator[str]:
    written = facts.node_file(node, HOSTNAME).decode(errors="replace").strip()
    if written != node.name:
        yield f"{layout.ignition(node)}: {HOSTNAME} says {written}, not {node.name}"
    for unit in facts.ignition(node).units:
        for command in commands(unit):
            # The common name of a kubelet's signing request.
            given = command.flags.get("hostname-override", node.name)
            if given != node.name:
                yield f"{layout.ignition(node)}: {unit.name} overrides the name by {given}, not {node.name}"


def _in_balancer(facts: Facts) -> Iterator[str]:
    names = {str(node.address): node.name for node in facts.cluster.nodes}
    for path, balancer in balancers(facts).items():
        for section in balancer.of_kind("backend", "listen"):
            for server in balancer.servers(section):
                if server.name != names.get(server.address):
                    yield f"{path}: {server.name} is the label of {server.address}, not {names.get(server.address)}"


def _in_zones(facts: Facts) -> Iterator[str]:
    forward = {(name, value) for name, kind, value in zone_records(facts, ZONE) if kind in ("A", "AAAA")}
    backward = {(name, value) for name, kind, value in zone_records(facts, REVERSE_ZONE) if kind == "PTR"}
    for node in facts.cluster.nodes:
        if (node.name, str(node.address)) not in forward:
            yield f"{ZONE} has not {node.name} at {node.address}"
        if (node.address.reverse_pointer, node.name) not in backward:
            yield f"{REVERSE_ZONE} does not lead from {node.address} to {node.name}"


def _in_network(facts: Facts) -> Iterator[str]:
    """The first name of a host is what a reverse lookup says."""
    first = {host.attrib.get("ip"): host.findtext("hostname") for host in xml(facts, NETWORK).findall("dns/host")}
    for node in facts.cluster.nodes:
        if first.get(str(node.address)) != node.name:
            yield f"{NETWORK}: the first name of {node.address} is {first.get(str(node.address))}, not {node.name}"


def _in_certificates(facts: Facts) -> Iterator[str]:
    for node in (facts.cluster.bootstrap, *facts.cluster.masters):
        for kind in ("peer", "serving"):
            path = layout.certificate(f"etcd-{kind}-{node.id}")
            if node.name not in facts.certificates(path)[0].dns_names:
                yield f"{path} is not for {node.name}"
