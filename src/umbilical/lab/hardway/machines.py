"""Machines of the hard way in a lab: network namespaces with the real kubelet, and a node that plays the host.

Implements `hardway.machines.interface`. Needs root. The lab's keeper outlives the pipeline, so that a killed run finds
its machines again.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.fault import LabError
from umbilical.hardway.artifacts.infrastructure.places import COREFILE, HAPROXY_BOOTSTRAP
from umbilical.hardway.artifacts.layout import INFRASTRUCTURE
from umbilical.hardway.config.cluster import Cluster
from umbilical.host import namespaces
from umbilical.host.machine_records import BackendServer, Done, InfraProbe, Power, Survey
from umbilical.lab import binaries
from umbilical.lab import lab as labs
from umbilical.lab.hardway import balancer as balancer_program
from umbilical.lab.hardway import names
from umbilical.lab.hardway import node as hardway_power
from umbilical.lab.hardway.balancer import LabBalancer
from umbilical.lab.hardway.names import HOST, LabResolver, forward_checks, reverse_checks, topology_of
from umbilical.lab.hardway.node import HOSTS, LabNode
from umbilical.lab.isolation import find_program
from umbilical.lab.kubelet import node_runtime
from umbilical.lab.kubelet.image_format import read_names
from umbilical.lab.kubelet.node_runtime import CNI_PACKAGE, check_needs, find_cni
from umbilical.lab.lab import Lab, UpRequest
from umbilical.lab.network import MACHINE_LINK
from umbilical.lab.state import LabDirectory, RunnerKind, read_state
from umbilical.manifests.objects import DEFAULT_IMAGE

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

FIX: Final = "umbilical stage run 02"


def inspect(lab: "Lab", cluster: Cluster) -> list[InfraProbe]:
    resolved = _names(LabResolver(lab), cluster)
    return [_topology(lab, cluster), _vips(lab, cluster), *_balancer(LabBalancer(lab)), *resolved]


def _topology(lab: "Lab", cluster: Cluster) -> InfraProbe:
    nodes = ", ".join(node.name for node in lab.topology.nodes)
    return InfraProbe("network", lab.topology == topology_of(cluster), f"nodes: {nodes}", "umbilical stage destroy")


def _vips(lab: "Lab", cluster: Cluster) -> InfraProbe:
    networks = cluster.networks
    there = lab.describe_network()["nodes"][HOST]["addresses"]
    wanted = [f"{vip}/{networks.machine.prefixlen}" for vip in (networks.api_vip, networks.ingress_vip)]
    return InfraProbe("vips", set(wanted) <= set(there), f"{HOST} has {', '.join(there)}", FIX)


def _balancer(balancer: LabBalancer) -> Iterator[InfraProbe]:
    bound, there = balancer.bound(), balancer.listening()
    missing = [place for place in bound if place not in there]
    seen = f"no process listens on {', '.join(missing)}" if missing else f"listening on {', '.join(bound) or 'nothing'}"
    yield InfraProbe("balancer", balancer.is_running and bool(bound) and not missing, seen, FIX)
    verdict = balancer.verdict(balancer.config())
    yield InfraProbe("balancer-config", verdict.is_good, verdict.report, "umbilical stage lint")


def _names(resolver: LabResolver, cluster: Cluster) -> Iterator[InfraProbe]:
    forward, reverse = forward_checks(cluster), reverse_checks(cluster)
    yield _answers("names", resolver.wrong(forward), len(forward))
    yield _answers("reverse-names", resolver.wrong(reverse, is_reverse=True), len(reverse))


def _answers(id_: str, wrong: Sequence[str], count: int) -> InfraProbe:
    return InfraProbe(id_, not wrong, "; ".join(wrong) or f"{count} answers are correct", FIX)


PEERS: Final = (*binaries.KUBELET, "etcdctl", "coredns")
SYSTEM: Final = ("containerd", "ctr", "runc", "ip", "nft", "iptables", "haproxy", "nsenter", "openssl", "curl")
MIB: Final = 1 << 20
GIB: Final = 1 << 30


class LabMachines:
    """Every call opens the lab by its directory: a run may have been killed, or several may use it."""

    def __init__(self, directory: Path, name: str, bin_dir: Path | None = None, *, image: Path | None = None) -> None:
        self._directory = directory
        self._name = name
        self._bin_dir = bin_dir
        self._image = image
        self._home: int | None = None

    @property
    def kind(self) -> str:
        return "lab"

    def survey(self, cluster: Cluster) -> Survey:
        place = next(folder for folder in (self._directory, *self._directory.parents) if folder.exists())
        version = cluster.release.version
        programs = {name: str(binaries.locate(name, self._bin_dir, version) or "") for name in PEERS}
        programs |= {name: find_program(name) or "" for name in SYSTEM}
        programs[CNI_PACKAGE] = str(find_cni() or "")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
        notes = [] if os.geteuid() == 0 else ["not root: control groups and container mounts need root"]
        try:
            binaries.find(PEERS, self._bin_dir, version)
        except LabError as error:
            notes.append(f"{error.what}; {error.remedy}")
        free = shutil.disk_usage(place).free // GIB
        return Survey(os.cpu_count() or 1, memory, free, programs, tuple(notes))

    def build(self, cluster: Cluster, infrastructure: Mapping[str, bytes]) -> None:
        """Create the lab with its host node, load balancer and resolver, or repair missing parts.

        Raises LabError: this machine cannot run it, a lab with another topology or image exists (UMB737), or the
        image's archive was not read (UMB849).
        """
        lab = self._open() or self._make(cluster)
        if lab.topology != topology_of(cluster):
            why = "its nodes or networks differ from cluster.yaml"
            raise LabError("UMB737", f"{self._directory} holds another lab", why, "umbilical stage destroy")
        if self._image is not None and lab.state.image != os.path.abspath(self._image):
            why = f"its machines were created without the image {self._image}"
            raise LabError("UMB737", f"{self._directory} holds another lab", why, "umbilical stage destroy")
        for node in cluster.nodes:
            # Link down for a machine that is off: else the kernel would refuse connections instead of staying silent.
            if LabNode(lab, node.id).power is not Power.ON:
                lab.set_link(node.id, False)
        self._set_up_host(lab, cluster)
        balancer = LabBalancer(lab)
        balancer.write_files(_named(infrastructure, INFRASTRUCTURE, ".crt"))
        balancer.begin(infrastructure[HAPROXY_BOOTSTRAP])
        LabResolver(lab).serve(_named(infrastructure, os.path.dirname(COREFILE)))
        for name in (balancer_program.PROCESS, names.PROCESS):
            hardway_power.share_log(lab, HOST, name)

    def inspect(self, cluster: Cluster) -> list[InfraProbe]:
        lab = self._open()
        if lab is None:
            return [InfraProbe("lab", False, f"no lab is up in {self._directory}", "umbilical stage run 02")]
        return inspect(lab, cluster)

    def enter(self) -> None:
        """Enter the network of the host node, for all new sockets and programs. Idempotent."""
        path = hardway_power.network_namespace(self._lab(), HOST)
        if self._home is None:
            self._home = os.open(namespaces.THREAD_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        namespaces.enter(path, namespaces.NamespaceKind.NETWORK)

    def power(self, node_id: str) -> Power:
        lab = self._open()
        return Power.ABSENT if lab is None else LabNode(lab, node_id).power

    def install(self, node_id: str, ignition: bytes) -> None:
        LabNode(self._lab(), node_id).install(ignition)

    def is_installed(self, node_id: str, ignition: bytes) -> bool:
        lab = self._open()
        return lab is not None and LabNode(lab, node_id).has(ignition)

    def start(self, node_id: str) -> None:
        node = LabNode(self._lab(), node_id)
        if node.power is Power.ABSENT:
            why = "nothing is installed on it"
            raise LabError("UMB738", f"could not start {node_id}", why, "umbilical stage run 09")
        node.boot()

    def failed_services(self, node_id: str) -> list[str]:
        return LabNode(self._lab(), node_id).failed_services()

    def stop(self, node_id: str) -> None:
        lab = self._open()
        if lab is not None and LabNode(lab, node_id).power is not Power.ABSENT:
            LabNode(lab, node_id).shut_down()

    def remove(self, node_id: str) -> None:
        lab = self._open()
        if lab is not None:
            LabNode(lab, node_id).clear()

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        """Run a program on a node. Raises LabError: the node is off (UMB738), or a timeout (UMB816)."""
        lab = self._lab()
        if LabNode(lab, node_id).power is not Power.ON:
            why = "the machine is powered off or not installed"
            raise LabError("UMB738", f"could not run a program on {node_id}", why, "umbilical stage status")
        done = lab.exec(node_id, command, stdin=stdin, timeout_seconds=timeout_seconds)
        return Done(done.exit_code, done.stdout, done.stderr)

    def shell(self, node_id: str, command: Sequence[str]) -> list[str]:
        return self._lab().shell(node_id, command)

    def load_image(self, node_id: str, archive: Path) -> list[str]:
        """Raises LabError: it is not an image archive (UMB772), or containerd does not run."""
        return node_runtime.load_image(self._lab(), node_id, archive)

    def read(self, node_id: str, path: str) -> bytes | None:
        try:
            return self._lab().read(node_id, path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, node_id: str, path: str, content: bytes, mode: int = 0o600) -> None:
        self._lab().write(node_id, path, content, mode)

    def set_balancer(self, config: bytes) -> None:
        LabBalancer(self._lab()).use(config)

    def balancer(self) -> list[BackendServer]:
        return LabBalancer(self._lab()).servers()

    def destroy(self) -> None:
        """Delete the lab, and return to the network from before `enter`."""
        if self._home is not None:
            namespaces.enter(self._home, namespaces.NamespaceKind.NETWORK)
            os.close(self._home)
            self._home = None
        labs.down(self._directory)

    def _open(self) -> Lab | None:
        """Return the lab; None if there is none, or only leftovers after a power loss."""
        state = read_state(LabDirectory(self._directory))
        return Lab.open(self._directory) if state is not None and state.is_alive() else None

    def _lab(self) -> Lab:
        """Raises LabError: UMB815, the lab is not up."""
        lab = self._open()
        if lab is None:
            raise LabError("UMB815", "the machines of the cluster are not up", f"no lab runs in {self._directory}", FIX)
        return lab

    def _make(self, cluster: Cluster) -> Lab:
        found = binaries.find(PEERS, self._bin_dir, cluster.release.version)
        check_needs(found)
        if self._image is not None:
            _check_image(self._image)
        topology = topology_of(cluster)
        return labs.up(UpRequest(self._directory, self._name, topology, RunnerKind.KUBELET, found, image=self._image))

    def _set_up_host(self, lab: Lab, cluster: Cluster) -> None:
        networks = cluster.networks
        for vip in dict.fromkeys((networks.api_vip, networks.ingress_vip)):
            address = f"{vip}/{networks.machine.prefixlen}"
            lab.exec(HOST, ["ip", "address", "replace", address, "dev", MACHINE_LINK]).check()
        lab.write(HOST, "/etc/hosts", HOSTS.encode(), 0o644)
        lab.write(HOST, "/etc/resolv.conf", f"nameserver {networks.dns}\n".encode(), 0o644)


def _check_image(archive: Path) -> None:
    """Check that an archive has the image that manifests name. Raises LabError: UMB849."""
    known = read_names(archive)
    if DEFAULT_IMAGE not in known:
        why = f"manifests name {DEFAULT_IMAGE}, and it contains {', '.join(known)}"
        raise LabError("UMB849", f"the image in {archive} was not used", why, "make image")


def _named(files: Mapping[str, bytes], folder: str, ending: str = "") -> dict[str, bytes]:
    """Return the files directly in a folder, by name."""
    return {
        os.path.basename(path): content
        for path, content in files.items()
        if os.path.dirname(path) == folder and path.endswith(ending)
    }
