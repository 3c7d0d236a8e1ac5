"""Rules about what lies around the nodes: load balancer (HA), virtual machines and their host (LV)."""

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
    deeds,
    domains,
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
"""HAProxy's; a bare number is milliseconds."""
_EVERYWHERE: Final = frozenset({"", "*", "0.0.0.0", "::"})


def _doors(facts: LintFacts) -> list[tuple[int, IpAddress]]:
    """List the ports that the cluster is reached by, each with its VIP."""
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
            yield from (f"{path}: {fault}" for fault in _belief_faults(facts, balancer, section))


def _check_faults(balancer: BalancerConfig, section: BalancerSection) -> Iterator[str]:
    asks_http = bool(section.values("option", "httpchk"))
    if section.values("http-check") and not asks_http:
        yield f"{section.name} says what to expect of an HTTP check and makes none"
    for server in balancer.servers(section):
        if not server.is_checked:
            yield f"{section.name}/{server.name} is not checked"
        elif asks_http and server.check_port in TLS_PORTS and not server.is_asked_over_tls:
            yield f"{section.name}/{server.name} is asked by plain HTTP on port {server.check_port}, which speaks TLS"
        elif server.is_asked_over_tls and "verify" not in server.words:
            yield f"{section.name}/{server.name} is asked over TLS, and whether it is believed is not said"


def _belief_faults(facts: LintFacts, balancer: BalancerConfig, section: BalancerSection) -> Iterator[str]:
    """Look for files of signers that are named and not made."""
    for server in balancer.servers(section):
        for word, name in pairwise(server.words):
            if word == "ca-file" and f"{INFRASTRUCTURE}/{posixpath.basename(name)}" not in facts.assets:
                yield f"{section.name}/{server.name} is believed by {name}, which is not among the artifacts"


def _members(facts: LintFacts) -> Iterator[str]:
    cluster, found = facts.cluster, balancers(facts)
    masters = {str(node.address) for node in cluster.masters}
    bootstrap = str(cluster.bootstrap.address)
    for path, wanted in ((HAPROXY_BOOTSTRAP, masters | {bootstrap}), (HAPROXY_FINAL, masters)):
        for port, vip in _doors(facts):
            if vip != cluster.networks.api_vip:
                continue
            servers = {server.address for one in found[path].backend_at(port) for server in found[path].servers(one)}
            for address in sorted(wanted - servers):
                yield f"{path}: {address} is not behind port {port}"
    for section in found[HAPROXY_FINAL].of_kind("backend", "listen"):
        for server in found[HAPROXY_FINAL].servers(section):
            if server.address == bootstrap or server.name == cluster.bootstrap.name:
                yield f"{HAPROXY_FINAL}: {section.name} still has the bootstrap node"


def _binds(facts: LintFacts) -> Iterator[str]:
    assigned = _assigned(facts)
    for path, balancer in balancers(facts).items():
        bound = {(port, address) for _, address, port in balancer.binds()}
        for port, vip in _doors(facts):
            if (port, str(vip)) not in bound:
                yield f"{path}: nobody listens on {vip} port {port}"
        for port, address in sorted(bound):
            if address not in assigned:
                yield f"{path}: port {port} is bound to {address or '*'}, which the plan does not assign"


def _assigned(facts: LintFacts) -> set[str]:
    """Return the addresses that the bridge gets; a lab lays what is listed on an interface of its own."""
    plan = host_plan(facts)
    listed = {str(one) for one in plan.get("vips") or []}
    if libvirt(facts) is not None:
        return listed
    bridge = facts.cluster.libvirt.bridge if facts.cluster.libvirt else ""
    pattern = re.compile(rf"ip address (?:add|replace) (\S+?)/\d+ dev {re.escape(bridge)}\b")
    return {match[1] for line in deeds(facts) for match in pattern.finditer(line)}


def _firewall(facts: LintFacts) -> Iterator[str]:
    done = deeds(facts)
    ports = [port for port, _ in _doors(facts)]
    if facts.cluster.libvirt is not None:
        ports.append(facts.cluster.libvirt.ignition_port)
    for port in ports:
        lines = [line for line in done if re.search(rf"--add-port={port}/tcp\b", line) and "--zone=libvirt" in line]
        if not lines:
            yield f"{HOST_PLAN} does not open port {port} in firewalld's zone libvirt"
        elif not any("--permanent" in line for line in lines):
            yield f"{HOST_PLAN} opens port {port} only until the next restart"
        elif not any("--reload" in line for line in lines):
            yield f"{HOST_PLAN} opens port {port} and does not reload: it counts from the next restart on"


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
    network, done = str(facts.cluster.networks.machine), deeds(facts)
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
            yield f"{HOST_PLAN} adds the {what} without asking by -C whether it is there"


def _dhcp(facts: LintFacts) -> Iterator[str]:
    ranges = xml(facts, NETWORK).findall("ip/dhcp/range")
    if not ranges:
        yield f"{NETWORK} has no range for DHCP: a live system gets no address and fetches no Ignition file"
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
                yield f"{NETWORK}: {name} {address} is in the range {first} to {last}"


def _address(text: str) -> IpAddress:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise Unreadable(f"{NETWORK}: the range for DHCP has {text!r}, which is no address") from None


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
            yield f"{what}: {path or 'nowhere'} is not below {folder}"


def _boot_order(facts: LintFacts) -> Iterator[str]:
    for path, machine in domains(facts).items():
        order = [boot.get("dev") for boot in machine.findall("os/boot")]
        if order != ["hd", "cdrom"]:
            yield f"{path} boots {', '.join(map(str, order)) or 'in no order'}"


def _wildcard(facts: LintFacts) -> Iterator[str]:
    name, vip = facts.cluster.apps_domain, str(facts.cluster.networks.ingress_vip)
    if not any((one, value) == (f"*.{name}", vip) for one, _, value in zone_records(facts, ZONE)):
        yield f"{ZONE} does not answer *.{name} with {vip}"
    if f"file {posixpath.basename(ZONE)} {facts.cluster.domain}" not in facts.text(COREFILE):
        yield f"{COREFILE} does not serve {ZONE} for {facts.cluster.domain}"
    if libvirt(facts) is None:
        options = xml(facts, NETWORK).findall(f"{{{DNSMASQ}}}options/{{{DNSMASQ}}}option")
        if f"address=/{name}/{vip}" not in [option.get("value") for option in options]:
            yield f"{NETWORK} has no option of dnsmasq that answers *.{name} with {vip}"


def _consoles(facts: LintFacts) -> Iterator[str]:
    for path, machine in domains(facts).items():
        for graphics in machine.findall("devices/graphics"):
            addresses = [graphics.get("listen"), *(one.get("address") for one in graphics.findall("listen"))]
            if any(address in _EVERYWHERE for address in addresses if address is not None):
                yield f"{path}: the console listens everywhere"


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "HA-01",
        "the load balancer asks servers that speak TLS over TLS",
        "A plain HTTP request to a TLS port is answered by nonsense: HAProxy says L7RSP, marks every server DOWN, and "
        "the API is not reachable although it runs.",
        "add `check-ssl verify required ca-file ...` beside `check`, or drop `option httpchk`",
        _checks,
    ),
    rule(
        "HA-02",
        "the bootstrap node is behind the API before the pivot, and not after it",
        "Without it in front nobody reaches the newborn API; left in after the pivot, a machine that is switched off "
        "gets requests.",
        "render anew: umbilical stage run 02",
        _members,
    ),
    rule(
        "HA-03",
        "the load balancer listens on the VIPs that are laid on the bridge, and nowhere else",
        "HAProxy does not start on an address that is not there (cannot assign requested address); bound to every "
        "address it takes ports 80 and 443 of its host.",
        "bind VIP:PORT, and assign the VIP in host-plan.json",
        _binds,
    ),
    rule(
        "HA-04",
        "the firewall of the host lets machines reach the load balancer and their Ignition files",
        "firewalld puts libvirt's bridges into its zone libvirt, which refuses all but a few services: connection "
        "refused (or no route to host) from machines, while it works on the host itself.",
        "umbilical stage run 02; bash artifacts/infrastructure/host-plan.sh check",
        _firewall,
        libvirt,
    ),
    rule(
        "HA-05",
        "the load balancer leaves silent connections open for an hour",
        "With the minute that examples have, exec and port-forward sessions are cut when nobody types, and watches by "
        "HTTP/1.1 begin anew each minute.",
        "timeout client 1h, timeout server 1h",
        _timeouts,
        severity=RuleSeverity.WARNING,
    ),
    rule(
        "LV-01",
        "machines reach the outside through their host",
        "firewalld takes libvirt's own rules away: no machine reaches a registry, and the first image pull times out.",
        "umbilical stage run 02; bash artifacts/infrastructure/host-plan.sh check",
        _nat,
        libvirt,
    ),
    rule(
        "LV-02",
        "live systems get an address, and none that is taken",
        "The live system has no address before Ignition has run: without DHCP it cannot fetch anything. A range over "
        "fixed addresses gives one of them to two machines.",
        "change networks.dhcp in cluster.yaml",
        _dhcp,
        libvirt,
    ),
    rule(
        "LV-03",
        "what QEMU reads lies in the pool's directory",
        "QEMU runs as another user and under SELinux: from a home directory it reads nothing (Permission denied).",
        "move it there, or change libvirt.poolDirectory in cluster.yaml",
        _pool,
        libvirt,
    ),
    rule(
        "LV-04",
        "a machine boots its disk first, then the live system",
        "The other way round it installs itself again at every start.",
        "<boot dev='hd'/> before <boot dev='cdrom'/>",
        _boot_order,
        libvirt,
    ),
    rule(
        "LV-05",
        "every name below apps is answered",
        "Routes have names that nobody knows beforehand; without a wildcard neither console nor login can be reached, "
        "and the operators that look at them never become Available.",
        "add dnsmasq's option address=/apps.DOMAIN/VIP; libvirt's own <dns> knows no wildcard",
        _wildcard,
    ),
    rule(
        "LV-06",
        "a machine's console is for its host alone",
        "VNC without a password on every address is a keyboard for whoever finds the port.",
        "<graphics type='vnc' listen='127.0.0.1'/>",
        _consoles,
        libvirt,
        severity=RuleSeverity.WARNING,
    ),
)
