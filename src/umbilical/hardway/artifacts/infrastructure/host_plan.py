"""Settings of the virtualisation host (firewall, SELinux, VIPs, NAT) as commands that check, do and undo them.

Stage 02 runs `check` first, does only what is missing, and records it; only recorded actions are undone. The order
matters: a reload of firewalld may drop other rules, so iptables rules come after it.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from umbilical.hardway.artifacts.infrastructure.haproxy import HTTP_PORT, HTTPS_PORT
from umbilical.hardway.artifacts.infrastructure.places import base_iso, libvirt_of, machine_places
from umbilical.hardway.config.cluster import API_PORT, MACHINE_CONFIG_PORT, Cluster, Libvirt
from umbilical.manifests.objects import IpAddress

ZONE: Final = "libvirt"
"""The firewalld zone of libvirt's bridges."""
BOOLEAN: Final = "haproxy_connect_any"
"""SELinux boolean that allows HAProxy to use other ports than those of the web."""


@dataclass(frozen=True)
class HostAction:
    """Shell commands; all can be repeated without harm."""

    id: str
    why: str
    check: str
    """Exit status 0: no action needed."""
    do: str
    undo: str


def host_actions(cluster: Cluster, libvirt: Libvirt) -> list[HostAction]:
    return [
        *(_port(port) for port in open_ports(cluster)),
        _selinux(),
        *(_vip(f"vip-{name}", vip, libvirt.bridge) for name, vip in vips(cluster).items()),
        *_nat(cluster, libvirt),
    ]


def vips(cluster: Cluster) -> dict[str, IpAddress]:
    return {"api": cluster.networks.api_vip, "ingress": cluster.networks.ingress_vip}


def open_ports(cluster: Cluster) -> tuple[int, ...]:
    """Return the ports of the host that machines dial: the load balancer's. Ignition configs are in the live images."""
    return (API_PORT, *((MACHINE_CONFIG_PORT, HTTP_PORT, HTTPS_PORT) if cluster.is_openshift else ()))


def plan_json(cluster: Cluster) -> bytes:
    """Return the plan as JSON. A lab has no actions, only VIPs, which it adds to its own interface."""
    libvirt = libvirt_of(cluster)
    value: dict[str, Any] = {
        "apiVersion": "umbilical.dev/v1alpha1",
        "kind": "HostPlan",
        "bridge": libvirt.bridge if libvirt else "",
        "vips": [str(vip) for vip in vips(cluster).values()],
        "actions": [asdict(action) for action in host_actions(cluster, libvirt)] if libvirt else [],
    }
    if libvirt:
        value["pool"] = _pool(cluster, libvirt)
    return json.dumps(value, indent=2).encode() + b"\n"


def plan_script(cluster: Cluster, libvirt: Libvirt) -> bytes:
    """Return the plan as a script with check, apply and undo, and with a record of what was done."""
    actions = host_actions(cluster, libvirt)
    functions = "\n".join(_functions(action) for action in actions)
    names = " ".join(action.id for action in actions)
    return f"{_HEAD}\nACTIONS=({names})\n\n{functions}\n{_TAIL}".encode()


def _pool(cluster: Cluster, libvirt: Libvirt) -> dict[str, Any]:
    nodes = {node.id: asdict(machine_places(cluster, libvirt, node)) for node in cluster.nodes}
    return {"name": libvirt.pool, "directory": libvirt.pool_directory, "iso": base_iso(libvirt), "machines": nodes}


def _port(port: int) -> HostAction:
    where = ("firewall-cmd", "--permanent", f"--zone={ZONE}")
    is_off = "! firewall-cmd --state >/dev/null 2>&1"
    return HostAction(
        f"firewall-{port}",
        f"firewalld rejects connections from machines to port {port} of the host",
        f"{is_off} || {shlex.join((*where, f'--query-port={port}/tcp'))} >/dev/null",
        f"{shlex.join((*where, f'--add-port={port}/tcp'))} && firewall-cmd --reload",
        f"{is_off} || {{ {shlex.join((*where, f'--remove-port={port}/tcp'))} && firewall-cmd --reload; }}",
    )


def _selinux() -> HostAction:
    return HostAction(
        "selinux",
        "SELinux forbids HAProxy to use ports such as 6443 and 22623",
        f"! command -v getsebool >/dev/null || getsebool {BOOLEAN} | grep -q 'on$'",
        f"setsebool -P {BOOLEAN}=1",
        f"setsebool -P {BOOLEAN}=0",
    )


def _vip(name: str, vip: IpAddress, bridge: str) -> HostAction:
    whole = f"{vip}/{vip.max_prefixlen}"
    return HostAction(
        name,
        f"HAProxy cannot bind {vip}; a restart of the libvirt network removes the address again",
        f"ip -o address show dev {bridge} to {whole} | grep -q .",
        f"ip address replace {whole} dev {bridge}",
        f"ip address delete {whole} dev {bridge}",
    )


def _nat(cluster: Cluster, libvirt: Libvirt) -> Iterator[HostAction]:
    network = cluster.networks.machine
    iptables = "iptables -w" if network.version == 4 else "ip6tables -w"
    masquerade = f"POSTROUTING -s {network} ! -d {network} -o {libvirt.uplink} -j MASQUERADE"
    why = "firewalld replaces libvirt's own rules; without masquerading no machine reaches a registry"
    yield _rule("masquerade", why, f"{iptables} -t nat", "-A", masquerade)
    # Inserted at the front, because libvirt's chains end with REJECT.
    outward = f"FORWARD -i {libvirt.bridge} -o {libvirt.uplink} -s {network} -j ACCEPT"
    inward = (
        f"FORWARD -i {libvirt.uplink} -o {libvirt.bridge} -d {network}"
        " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    )
    yield _rule("forward-out", "the host drops packets from machines to the outside", iptables, "-I", outward)
    yield _rule("forward-in", "the host drops replies from the outside", iptables, "-I", inward)


def _rule(name: str, why: str, program: str, verb: str, text: str) -> HostAction:
    """Check with -C before adding: iptables adds the same rule more than once."""
    check = f"{program} -C {text} 2>/dev/null"
    return HostAction(name, why, check, f"{check} || {program} {verb} {text}", f"{program} -D {text}")


def _functions(action: HostAction) -> str:
    stem = action.id.replace("-", "_")
    return (
        f"# {action.why}\n"
        f"check_{stem}() {{\n    {action.check}\n}}\n"
        f"do_{stem}() {{\n    {action.do}\n}}\n"
        f"undo_{stem}() {{\n    {action.undo}\n}}\n"
    )


_HEAD: Final = """\
#!/bin/bash
# Settings that this host needs for the cluster's machines. Run as root:
#   host-plan.sh check           list what is missing
#   host-plan.sh apply RECORD    do what is missing, and record it in the file RECORD
#   host-plan.sh undo RECORD     undo what RECORD lists, in reverse order
set -euo pipefail
"""
_TAIL: Final = """\
check() {
    local action missing=0
    for action in "${ACTIONS[@]}"; do
        if "check_${action//-/_}"; then
            echo "there: ${action}"
        else
            echo "missing: ${action}"
            missing=1
        fi
    done
    return "${missing}"
}

apply() {
    local action
    for action in "${ACTIONS[@]}"; do
        if ! "check_${action//-/_}"; then
            # The record comes first: an interrupted action must be undone too.
            echo "${action}" >>"$1"
            "do_${action//-/_}"
        fi
    done
}

undo() {
    local action
    [[ -e $1 ]] || return 0
    while read -r action; do
        "undo_${action//-/_}" || echo "undo failed: ${action}" >&2
    done < <(tac -- "$1")
    rm -f -- "$1"
}

case "${1:-}" in
    check) check ;;
    apply | undo) "$1" "${2:?name the record file}" ;;
    *)
        sed -n '2,5s/^# \\{0,1\\}//p' "$0" >&2
        exit 2
        ;;
esac
"""
