"""Rules about the infrastructure: load balancer (HA), virtual machines and their host (LV)."""

import ipaddress
import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from umbilical.hardway.artifacts.infrastructure.haproxy import HTTP_PORT, HTTPS_PORT
from umbilical.hardway.artifacts.infrastructure.libvirt import DNSMASQ
from umbilical.hardway.artifacts.infrastructure.places import (
    COREFILE,
    HAPROXY_BOOTSTRAP,
    HAPROXY_FINAL,
    HOST_PLAN,
    NETWORK,
    ZONE,
)
from umbilical.hardway.artifacts.layout import INFRASTRUCTURE
from umbilical.hardway.config.cluster import API_PORT, MACHINE_CONFIG_PORT
from umbilical.hardway.lint.facts import LintFacts, LintRule, RuleSeverity, Unreadable, rule
from umbilical.hardway.lint.host_facts import (
    BalancerConfig,
    BalancerSection,
    balancers,
    domains,
    host_commands,
    host_plan,
    is_below,
    libvirt,
    xml,
    zone_records,
)
from umbilical.manifests.objects import IpAddress

TLS_PORTS: Final = frozenset({API_PORT, MACHINE_CONFIG_PORT, HTTPS_PORT})
LONG_SECONDS: Final = 3600
_UNITS: Final = {"us": 1e-6, "ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""HAProxy's time units; a bare number is milliseconds."""
_EVERYWHERE: Final = frozenset({"", "*", "0.0.0.0", "::"})


def _entry_points(facts: LintFacts) -> list[tuple[int, IpAddress]]:
    """List the ports of the load balancer, each with its VIP."""
    networks = facts.cluster.networks
    api = [(API_PORT, networks.api_vip)]
    if not facts.cluster.is_openshift:
        return api
    more = [(MACHINE_CONFIG_PORT, networks.api_vip)]
    return [*api, *more, (HTTP_PORT, networks.ingress_vip), (HTTPS_PORT, networks.ingress_vip)]


def _checks(facts: LintFacts) -> Iterator[str]:
    for path, balancer in balancers(facts).items():
        behind = [section for section in balancer.of_kind("backend", "listen") if balancer.servers(section)]
        if not behind:
            yield f"{path} has no server"
        for section in behind:
            yield from (f"{path}: {fault}" for fault in _check_faults(balancer, section))
            yield from (f"{path}: {fault}" for fault in _ca_file_faults(facts, balancer, section))


def _check_faults(balancer: BalancerConfig, section: BalancerSection) -> Iterator[str]:
    asks_http = bool(section.values("option", "httpchk"))
    if section.values("http-check") and not asks_http:
        yield f"{section.name} has http-check but no option httpchk"
    for server in balancer.servers(section):
        if not server.is_checked:
            yield f"{section.name}/{server.name} is not checked"
        elif asks_http and server.check_port in TLS_PORTS and not server.is_checked_over_tls:
            yield f"{section.name}/{server.name} is checked by plain HTTP on port {server.check_port}, which uses TLS"
        elif server.is_checked_over_tls and "verify" not in server.words:
            yield f"{section.name}/{server.name} is checked over TLS without the option verify"


def _ca_file_faults(facts: LintFacts, balancer: BalancerConfig, section: BalancerSection) -> Iterator[str]:
    """Find CA files that are configured but not among the artifacts."""
    for server in balancer.servers(section):
        for word, name in pairwise(server.words):
            if word == "ca-file" and f"{INFRASTRUCTURE}/{posixpath.basename(name)}" not in facts.assets:
                yield f"{section.name}/{server.name} has ca-file {name}, which is not among the artifacts"


def _members(facts: LintFacts) -> Iterator[str]:
    cluster, found = facts.cluster, balancers(facts)
    masters = {str(node.address) for node in cluster.masters}
    bootstrap = str(cluster.bootstrap.address)
    for path, wanted in ((HAPROXY_BOOTSTRAP, masters | {bootstrap}), (HAPROXY_FINAL, masters)):
        for port, vip in _entry_points(facts):
            if vip != cluster.networks.api_vip:
                continue
            servers = {server.address for one in found[path].backend_at(port) for server in found[path].servers(one)}
            for address in sorted(wanted - servers):
                yield f"{path}: {address} is not a server of port {port}"
    for section in found[HAPROXY_FINAL].of_kind("backend", "listen"):
        for server in found[HAPROXY_FINAL].servers(section):
            if server.address == bootstrap or server.name == cluster.bootstrap.name:
                yield f"{HAPROXY_FINAL}: {section.name} still has the bootstrap node"


def _binds(facts: LintFacts) -> Iterator[str]:
    assigned = _assigned(facts)
    for path, balancer in balancers(facts).items():
        bound = {(port, address) for _, address, port in balancer.binds()}
        for port, vip in _entry_points(facts):
            if (port, str(vip)) not in bound:
                yield f"{path}: nothing listens on {vip} port {port}"
        for port, address in sorted(bound):
            if address not in assigned:
                yield f"{path}: port {port} is bound to {address or '*'}, which {HOST_PLAN} does not assign"


def _assigned(facts: LintFacts) -> set[str]:
    """Return the addresses that the bridge gets, or in a lab the listed VIPs."""
    plan = host_plan(facts)
    listed = {str(one) for one in plan.get("vips") or []}
    if libvirt(facts) is not None:
        return listed
    bridge = facts.cluster.libvirt.bridge if facts.cluster.libvirt else ""
    pattern = re.compile(rf"ip address (?:add|replace) (\S+?)/\d+ dev {re.escape(bridge)}\b")
    return {match[1] for line in host_commands(facts) for match in pattern.finditer(line)}


def _firewall(facts: LintFacts) -> Iterator[str]:
    done = host_commands(facts)
    for port, _ in _entry_points(facts):
        lines = [line for line in done if re.search(rf"--add-port={port}/tcp\b", line) and "--zone=libvirt" in line]
        if not lines:
            yield f"{HOST_PLAN} does not open port {port} in firewalld's zone libvirt"
        elif not any("--permanent" in line for line in lines):
            yield f"{HOST_PLAN} opens port {port} only until the next restart of firewalld"
        elif not any("--reload" in line for line in lines):
            yield f"{HOST_PLAN} opens port {port} without a reload of firewalld, so it has no effect yet"


def _timeouts(facts: LintFacts) -> Iterator[str]:
    for path, balancer in balancers(facts).items():
        for kind in ("client", "server"):
            values = [line for one in balancer.of_kind("defaults") for line in one.values("timeout", kind)]
            seconds = max((_seconds(line[0]) for line in values if line), default=0.0)
            if seconds < LONG_SECONDS:
                yield f"{path}: timeout {kind} is {seconds:g} s"


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)(us|ms|s|m|h|d|)", text)
    return int(match[1]) * _UNITS[match[2]] if match else 0.0


def _nat(facts: LintFacts) -> Iterator[str]:
    network, done = str(facts.cluster.networks.machine), host_commands(facts)
    bridge = facts.cluster.libvirt.bridge if facts.cluster.libvirt else ""
    wanted = {
        f"masquerading of {network}": rf"-t nat -\S POSTROUTING -s {re.escape(network)} .*-j MASQUERADE",
        f"forwarding from {bridge}": rf"-\S FORWARD -i {re.escape(bridge)} .*-j ACCEPT",
        f"forwarding to {bridge}": rf"-\S FORWARD .*-o {re.escape(bridge)} .*-j ACCEPT",
    }
    for what, pattern in wanted.items():
        lines = [line for line in done if re.search(pattern, line)]
        if not lines:
            yield f"{HOST_PLAN} has no {what}"
        elif not all(re.search(r" -C .*\|\| .* -[AI] ", line) for line in lines):
            yield f"{HOST_PLAN} adds the {what} without checking with -C whether it exists"


def _dhcp(facts: LintFacts) -> Iterator[str]:
    ranges = xml(facts, NETWORK).findall("ip/dhcp/range")
    if not ranges:
        yield f"{NETWORK} has no DHCP range: live systems get no address and cannot fetch Ignition files"
    networks = facts.cluster.networks
    fixed = {
        "the gateway": networks.gateway,
        "the API's VIP": networks.api_vip,
        "the ingress VIP": networks.ingress_vip,
        **{node.id: node.address for node in facts.cluster.nodes},
    }
    for one in ranges:
        first, last = (_address(one.get(end, "")) for end in ("start", "end"))
        for name, address in fixed.items():
            if int(first) <= int(address) <= int(last):
                yield f"{NETWORK}: {name} {address} is in the DHCP range {first} to {last}"


def _address(text: str) -> IpAddress:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise Unreadable(f"{NETWORK}: the DHCP range has {text!r}, which is not an address") from None


def _pool(facts: LintFacts) -> Iterator[str]:
    pool = host_plan(facts).get("pool") or {}
    folder = facts.cluster.libvirt.pool_directory if facts.cluster.libvirt else ""
    named = {"the live system": str(pool.get("iso", ""))}
    for node, paths in dict(pool.get("machines") or {}).items():
        named |= {f"{node}'s {what}": str(paths.get(what, "")) for what in ("disk", "iso", "ignition")}
    for path, machine in domains(facts).items():
        for source in machine.findall("devices/disk/source"):
            named[f"{path}, {source.get('file')}"] = source.get("file", "")
    for what, path in named.items():
        if not is_below(path, folder):
            yield f"{what}: {path or 'no path'} is not below {folder}"


def _boot_order(facts: LintFacts) -> Iterator[str]:
    for path, machine in domains(facts).items():
        order = [boot.get("dev") for boot in machine.findall("os/boot")]
        if order != ["hd", "cdrom"]:
            yield f"{path} has the boot order {', '.join(map(str, order)) or 'none'}, not hd, cdrom"


def _wildcard(facts: LintFacts) -> Iterator[str]:
    name, vip = facts.cluster.apps_domain, str(facts.cluster.networks.ingress_vip)
    if not any((one, value) == (f"*.{name}", vip) for one, _, value in zone_records(facts, ZONE)):
        yield f"{ZONE} has no record *.{name} for {vip}"
    if f"file {posixpath.basename(ZONE)} {facts.cluster.domain}" not in facts.text(COREFILE):
        yield f"{COREFILE} does not serve {ZONE} for {facts.cluster.domain}"
    if libvirt(facts) is None:
        options = xml(facts, NETWORK).findall(f"{{{DNSMASQ}}}options/{{{DNSMASQ}}}option")
        if f"address=/{name}/{vip}" not in [option.get("value") for option in options]:
            yield f"{NETWORK} has no dnsmasq option that resolves *.{name} to {vip}"


def _consoles(facts: LintFacts) -> Iterator[str]:
    for path, machine in domains(facts).items():
        for graphics in machine.findall("devices/graphics"):
            addresses = [graphics.get("listen"), *(one.get("address") for one in graphics.findall("listen"))]
            if any(address in _EVERYWHERE for address in addresses if address is not None):
                yield f"{path}: the console listens on all addresses"


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "HA-01",
        "the load balancer checks TLS servers over TLS",
        "With a plain HTTP check of a TLS port HAProxy reports L7RSP and marks every server DOWN; the API is not "
        "reachable although it runs.",
        "add `check-ssl verify required ca-file ...` after `check`, or remove `option httpchk`",
        _checks,
    ),
    rule(
        "HA-02",
        "the bootstrap node is a server of the API before the pivot, and not after it",
        "Before the pivot it is the only API server. After the pivot its machine is turned off, and requests to it "
        "fail.",
        "render the files again: umbilical stage run 02",
        _members,
    ),
    rule(
        "HA-03",
        "the load balancer listens only on the VIPs that the host plan assigns",
        "HAProxy does not start with an address that the host does not have (cannot assign requested address); bound "
        "to all addresses it occupies ports 80 and 443 of its host.",
        "bind VIP:PORT, and assign the VIP in host-plan.json",
        _binds,
    ),
    rule(
        "HA-04",
        "the host's firewall allows machines to reach the load balancer",
        "libvirt's bridges are in firewalld's zone libvirt, which rejects all but a few services: machines get "
        "connection refused (or no route to host), while the same request works on the host.",
        "umbilical stage run 02; bash artifacts/infrastructure/host-plan.sh check",
        _firewall,
        libvirt,
    ),
    rule(
        "HA-05",
        "the load balancer keeps idle connections open for an hour",
        "With a timeout of a minute, as in many examples, idle exec and port-forward sessions are closed, and HTTP/1.1 "
        "watches restart every minute.",
        "set timeout client 1h and timeout server 1h",
        _timeouts,
        severity=RuleSeverity.WARNING,
    ),
    rule(
        "LV-01",
        "machines can reach the outside through their host",
        "firewalld removes libvirt's own rules: no machine reaches a registry, and the first image pull times out.",
        "umbilical stage run 02; bash artifacts/infrastructure/host-plan.sh check",
        _nat,
        libvirt,
    ),
    rule(
        "LV-02",
        "live systems get an address from DHCP that is not in use",
        "The live system has no address before Ignition has run: without DHCP it cannot fetch its config. A range with "
        "fixed addresses gives one address to two machines.",
        "change networks.dhcp in cluster.yaml",
        _dhcp,
        libvirt,
    ),
    rule(
        "LV-03",
        "all files that QEMU reads are in the pool directory",
        "QEMU runs as another user and under SELinux: it cannot read files in a home directory (Permission denied).",
        "move the files there, or change libvirt.poolDirectory in cluster.yaml",
        _pool,
        libvirt,
    ),
    rule(
        "LV-04",
        "a machine boots from its disk first, then from the live system",
        "In the other order it installs itself again at every start.",
        "put <boot dev='hd'/> before <boot dev='cdrom'/>",
        _boot_order,
        libvirt,
    ),
    rule(
        "LV-05",
        "every name below apps resolves",
        "The names of routes are not known in advance; without a wildcard record console and login are not reachable, "
        "and the operators that check them never become Available.",
        "add the dnsmasq option address=/apps.DOMAIN/VIP; libvirt's <dns> does not support wildcards",
        _wildcard,
    ),
    rule(
        "LV-06",
        "a machine's console listens on loopback only",
        "VNC without a password on all addresses gives anyone in the network access to the machine.",
        "set <graphics type='vnc' listen='127.0.0.1'/>",
        _consoles,
        libvirt,
        severity=RuleSeverity.WARNING,
    ),
)
