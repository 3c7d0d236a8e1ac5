"""What the host of the machines must let through, as commands: how to see it, do it and take it back.

Whoever applies the plan asks `check` first, does only what is missing and remembers what that was: taking back is for
that alone. Order matters: a reload of firewalld may drop rules of others, so what iptables gets comes after it.
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
"""firewalld's, into which libvirt puts its bridges."""
BOOLEAN: Final = "haproxy_connect_any"
"""SELinux: HAProxy may listen and dial on ports that are not the web's."""


@dataclass(frozen=True)
class HostAction:
    """Lines for a shell. All are harmless when said twice."""

    id: str
    why: str
    check: str
    """Ends with 0 when nothing is to be done."""
    do: str
    undo: str


def host_actions(cluster: Cluster, libvirt: Libvirt) -> list[HostAction]:
    return [
        *(_port(port) for port in open_ports(cluster, libvirt)),
        _selinux(),
        *(_vip(f"vip-{name}", vip, libvirt.bridge) for name, vip in vips(cluster).items()),
        *_nat(cluster, libvirt),
    ]


def vips(cluster: Cluster) -> dict[str, IpAddress]:
    return {"api": cluster.networks.api_vip, "ingress": cluster.networks.ingress_vip}


def open_ports(cluster: Cluster, libvirt: Libvirt) -> tuple[int, ...]:
    """Return what machines dial on their host: the load balancer's ports, and where they fetch Ignition."""
    openshift = (MACHINE_CONFIG_PORT, HTTP_PORT, HTTPS_PORT) if cluster.is_openshift else ()
    return (API_PORT, *openshift, libvirt.ignition_port)


def plan_json(cluster: Cluster) -> bytes:
    """The plan for programs. A lab has no host to change: only VIPs, which it lays on its own interface."""
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
    """The same for people: check, apply and undo, with a record of what was done."""
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
        f"firewalld turns machines away that dial port {port} of their host",
        f"{is_off} || {shlex.join((*where, f'--query-port={port}/tcp'))} >/dev/null",
        f"{shlex.join((*where, f'--add-port={port}/tcp'))} && firewall-cmd --reload",
        f"{is_off} || {{ {shlex.join((*where, f'--remove-port={port}/tcp'))} && firewall-cmd --reload; }}",
    )


def _selinux() -> HostAction:
    return HostAction(
        "selinux",
        "SELinux keeps HAProxy from ports such as 6443 and 22623",
        f"! command -v getsebool >/dev/null || getsebool {BOOLEAN} | grep -q 'on$'",
        f"setsebool -P {BOOLEAN}=1",
        f"setsebool -P {BOOLEAN}=0",
    )


def _vip(name: str, vip: IpAddress, bridge: str) -> HostAction:
    whole = f"{vip}/{vip.max_prefixlen}"
    return HostAction(
        name,
        f"nobody answers for {vip}, and HAProxy cannot bind it; a restart of the network takes it away again",
        f"ip -o address show dev {bridge} to {whole} | grep -q .",
        f"ip address replace {whole} dev {bridge}",
        f"ip address delete {whole} dev {bridge}",
    )


def _nat(cluster: Cluster, libvirt: Libvirt) -> Iterator[HostAction]:
    network = cluster.networks.machine
    iptables = "iptables -w" if network.version == 4 else "ip6tables -w"
    masquerade = f"POSTROUTING -s {network} ! -d {network} -o {libvirt.uplink} -j MASQUERADE"
    why = "firewalld replaces libvirt's own rules: without this no machine reaches a registry"
    yield _rule("masquerade", why, f"{iptables} -t nat", "-A", masquerade)
    # In front: libvirt's chains end with a refusal.
    outward = f"FORWARD -i {libvirt.bridge} -o {libvirt.uplink} -s {network} -j ACCEPT"
    inward = (
        f"FORWARD -i {libvirt.uplink} -o {libvirt.bridge} -d {network}"
        " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    )
    yield _rule("forward-out", "packets of machines to the outside are dropped", iptables, "-I", outward)
    yield _rule("forward-in", "answers from the outside are dropped", iptables, "-I", inward)


def _rule(name: str, why: str, program: str, verb: str, text: str) -> HostAction:
    """Ask with -C before adding: iptables takes the same rule as often as it is given."""
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
# What this host must let through for the cluster's machines. As root:
#   host-plan.sh check           say what is missing
#   host-plan.sh apply RECORD    do what is missing, and write into RECORD what that was
#   host-plan.sh undo RECORD     take back what RECORD names, the last first
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
            # First the record: what was begun must be taken back too.
            echo "${action}" >>"$1"
            "do_${action//-/_}"
        fi
    done
}

undo() {
    local action
    [[ -e $1 ]] || return 0
    while read -r action; do
        "undo_${action//-/_}" || echo "could not be taken back: ${action}" >&2
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
