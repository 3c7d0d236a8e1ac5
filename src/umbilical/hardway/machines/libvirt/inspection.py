"""Whether the host has now what stage 02 makes: network, pool, names, load balancer, machines, and the live image."""

from collections.abc import Iterator
from typing import Final

from umbilical.hardway.artifacts.infrastructure.host_plan import host_actions
from umbilical.hardway.artifacts.infrastructure.places import base_iso, machine_places
from umbilical.hardway.config.cluster import API_PORT, Cluster, Libvirt
from umbilical.hardway.machines.libvirt.host import Host, do, holds
from umbilical.hardway.machines.libvirt.host_plan import HostPlan
from umbilical.hardway.machines.libvirt.service import BalancerService
from umbilical.hardway.machines.libvirt.virsh import Virsh
from umbilical.host.machine_records import Power, Probe

AGAIN: Final = "umbilical stage retry 2"
# ECMA-119 8.1: the first volume descriptor is in sector 16, and says so from its second byte on.
_IS_ISO: Final = 'test "$(dd if="$1" bs=1 skip=32769 count=5 2>/dev/null)" = CD001'


def inspect(host: Host, cluster: Cluster, libvirt: Libvirt, plan: HostPlan) -> list[Probe]:
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


def _probe(name: str, is_right: bool, what: str, fix: str = AGAIN) -> Probe:
    return Probe(name, is_right, f"{what}: {'right' if is_right else 'missing or not active'}", fix)


def _machines(virsh: Virsh, cluster: Cluster, libvirt: Libvirt) -> Iterator[Probe]:
    for node in cluster.nodes:
        domain = machine_places(cluster, libvirt, node).domain
        yield _probe(f"machine-{node.id}", virsh.power(domain) is not Power.ABSENT, f"machine {domain}")


def _names(host: Host, cluster: Cluster) -> Iterator[Probe]:
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
        # A kubelet whose host has no name yet takes the one that its address has.
        yield _answer(host, cluster, f"address-{node.id}", ["-x", str(node.address)], f"{node.name}.")


def _answer(host: Host, cluster: Cluster, name: str, question: list[str], wanted: str) -> Probe:
    done = host.run(["dig", "+short", "+time=2", "+tries=2", f"@{cluster.networks.dns}", *question])
    answers = done.text.split()
    first = answers[0] if answers else "nothing"
    # The first name counts: whoever asks by address takes that one for the node's.
    return Probe(name, first == wanted, f"the resolver says {first}, wanted is {wanted}", AGAIN)


def _balancer(host: Host) -> Probe:
    wrong = BalancerService(host).faults()
    return Probe("balancer", not wrong, wrong or "HAProxy is active and its configuration without a warning", AGAIN)


def _listening(host: Host, cluster: Cluster) -> Probe:
    place = f"{cluster.networks.api_vip}:{API_PORT}"
    rows = (row.split() for row in do(host, "ss", "--no-header", "-ltn").splitlines())
    is_there = any(len(row) > 3 and row[3] == place for row in rows)
    return Probe("listening", is_there, f"{'somebody' if is_there else 'nobody'} listens on {place}", AGAIN)


def _image(host: Host, libvirt: Libvirt) -> Probe:
    path = base_iso(libvirt)
    fix = f"coreos-installer download -p metal -f iso -C {libvirt.pool_directory}, and name it as libvirt.iso"
    is_image = holds(host, "sh", "-c", _IS_ISO, "sh", path)
    return Probe("live-image", is_image, f"{path} {'is' if is_image else 'is missing, or is no'} ISO image", fix)
