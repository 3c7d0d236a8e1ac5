"""Survey of a virtualisation host (cores, memory, disk, programs), and checks of what stage 02 makes."""

import re
from collections.abc import Iterator
from typing import Final

from umbilical.hardway.artifacts.infrastructure.host_plan import host_actions
from umbilical.hardway.artifacts.infrastructure.places import base_iso, machine_places
from umbilical.hardway.config.cluster import API_PORT, Cluster, Libvirt
from umbilical.hardway.machines.host import Host, do, holds
from umbilical.hardway.machines.host_services import BalancerService, HostPlan
from umbilical.hardway.machines.virsh import Virsh
from umbilical.host.machine_records import InfraProbe, Power, Survey

AGAIN: Final = "umbilical stage retry 2"
# ECMA-119 8.1: the first volume descriptor, in sector 16, has this id from its second byte on.
_IS_ISO: Final = 'test "$(dd if="$1" bs=1 skip=32769 count=5 2>/dev/null)" = CD001'


def inspect(host: Host, cluster: Cluster, libvirt: Libvirt, plan: HostPlan) -> list[InfraProbe]:
    virsh = Virsh(host)
    return [
        _probe("network", virsh.is_so("net-info", libvirt.network, "Active", "yes"), f"network {libvirt.network}"),
        _probe("pool", virsh.is_so("pool-info", libvirt.pool, "State", "running"), f"pool {libvirt.pool}"),
        *_machines(virsh, cluster, libvirt),
        *_names(host, cluster),
        _balancer(host),
        _listening(host, cluster),
        _image(host, libvirt),
        *plan.probes(host_actions(cluster, libvirt)),
    ]


def _probe(name: str, is_right: bool, what: str, fix: str = AGAIN) -> InfraProbe:
    return InfraProbe(name, is_right, f"{what}: {'active' if is_right else 'missing or not active'}", fix)


def _machines(virsh: Virsh, cluster: Cluster, libvirt: Libvirt) -> Iterator[InfraProbe]:
    for node in cluster.nodes:
        domain = machine_places(cluster, libvirt, node).domain
        yield _probe(f"machine-{node.id}", virsh.power(domain) is not Power.ABSENT, f"machine {domain}")


def _names(host: Host, cluster: Cluster) -> Iterator[InfraProbe]:
    networks = cluster.networks
    wanted = {
        cluster.api_name: str(networks.api_vip),
        cluster.internal_api_name: str(networks.api_vip),
        f"any.{cluster.apps_domain}": str(networks.ingress_vip),
        **{node.name: str(node.address) for node in cluster.nodes},
    }
    for name, address in wanted.items():
        yield _answer(host, cluster, f"name-{name}", ["A" if networks.machine.version == 4 else "AAAA", name], address)
    for node in cluster.nodes:
        # A kubelet whose host has no name yet uses the PTR name of its address.
        yield _answer(host, cluster, f"address-{node.id}", ["-x", str(node.address)], f"{node.name}.")


def _answer(host: Host, cluster: Cluster, name: str, question: list[str], wanted: str) -> InfraProbe:
    done = host.run(["dig", "+short", "+time=2", "+tries=2", f"@{cluster.networks.dns}", *question])
    answers = done.text.split()
    first = answers[0] if answers else "nothing"
    # Clients use the first name only.
    return InfraProbe(name, first == wanted, f"the resolver returned {first}; expected {wanted}", AGAIN)


def _balancer(host: Host) -> InfraProbe:
    wrong = BalancerService(host).faults()
    return InfraProbe("balancer", not wrong, wrong or "HAProxy is active, and its configuration has no warnings", AGAIN)


def _listening(host: Host, cluster: Cluster) -> InfraProbe:
    place = f"{cluster.networks.api_vip}:{API_PORT}"
    rows = (row.split() for row in do(host, "ss", "--no-header", "-ltn").splitlines())
    is_there = any(len(row) > 3 and row[3] == place for row in rows)
    return InfraProbe("listening", is_there, f"{'a program' if is_there else 'nothing'} listens on {place}", AGAIN)


def _image(host: Host, libvirt: Libvirt) -> InfraProbe:
    path = base_iso(libvirt)
    fix = f"coreos-installer download -p metal -f iso -C {libvirt.pool_directory}, and set libvirt.iso to its name"
    is_image = holds(host, "sh", "-c", _IS_ISO, "sh", path)
    return InfraProbe(
        "live-image", is_image, f"{path} {'is an' if is_image else 'is missing, or is not an'} ISO image", fix
    )


PROGRAMS: Final = (
    *("podman", "oc", "openssl", "virsh", "qemu-img", "coreos-installer", "haproxy", "ssh", "socat", "ip", "iptables"),
    *("systemctl", "dig"),
)
_FIND: Final = 'for program; do printf "%s=%s\\n" "$program" "$(command -v "$program")"; done'
_FREE: Final = (
    'place=$1; while ! test -e "$place"; do place=${place%/*}; place=${place:-/}; done; '
    'df --output=avail -BG -- "$place"'
)
"""Free space at the pool's directory, which may not exist yet."""


def survey(host: Host, libvirt: Libvirt) -> Survey:
    found = do(host, "sh", "-c", _FIND, "sh", *PROGRAMS)
    programs = dict(line.split("=", 1) for line in found.splitlines() if "=" in line)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", do(host, "cat", "/proc/meminfo"), re.MULTILINE)
    free = re.search(r"(\d+)G", do(host, "sh", "-c", _FREE, "sh", libvirt.pool_directory))
    return Survey(
        cores=int(do(host, "nproc").strip() or 0),
        memory_mib=int(memory[1]) // 1024 if memory else 0,
        free_disk_gib=int(free[1]) if free else 0,
        programs={name: programs.get(name, "") for name in PROGRAMS},
        notes=tuple(_notes(host, has_libvirt=bool(programs.get("virsh")))),
    )


def _notes(host: Host, *, has_libvirt: bool) -> list[str]:
    # A missing program is a finding; the survey must continue without it.
    done = host.run(["virsh", "list", "--all"]) if has_libvirt else None
    notes = [] if done is None or done.exit_code == 0 else [f"libvirt does not answer: {done.complaint}"]
    machine = do(host, "uname", "-m").strip()
    return notes if machine == "x86_64" else [*notes, f"the host is {machine}; machines are defined for x86_64"]
