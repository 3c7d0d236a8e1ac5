"""`Machines` with libvirt: a live image installs RHCOS with the node's Ignition config.

Nodes are reached by ssh as the user core with sudo. Host keys are accepted once after each installation, then pinned.
"""

import base64
import binascii
import hashlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import Fault, HardwayError, StageTimeout
from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.artifacts.infrastructure.libvirt import domain_xml, install_commands
from umbilical.hardway.config.cluster import Cluster, ClusterNode, Libvirt
from umbilical.hardway.ledger import RECORD
from umbilical.hardway.machines import inspection
from umbilical.hardway.machines.host import WRITE, Host, ThisHost, as_done, do, put
from umbilical.hardway.machines.host_services import PLAN_RECORD, BalancerService, HostPlan, read_plan
from umbilical.hardway.machines.virsh import Virsh
from umbilical.host.commands import CommandRunner, SshRunner
from umbilical.host.files import make_directory
from umbilical.host.machine_records import BackendServer, Done, InfraProbe, Power, Survey

KNOWN_HOSTS: Final = "known-hosts"
"""Folder below the record with one file per node: an entry of a shared file may be hashed and hard to delete."""
READ_SECONDS: Final = 60.0
_NO_FILE: Final = 44
# base64: a runner returns text, and a file may hold any bytes.
READ: Final = f'test -f "$1" || exit {_NO_FILE}; exec base64 -w0 -- "$1"'

Connect = Callable[[ClusterNode], CommandRunner]


def connect_by_ssh(record: Path, key: str) -> Connect:
    """Return a function that makes runners for nodes."""

    return lambda node: ssh_runner(record, key, node)


def ssh_runner(record: Path, key: str, node: ClusterNode) -> SshRunner:
    private = Path(key).expanduser() if key else None
    known_hosts = make_directory(record / KNOWN_HOSTS) / node.id
    return SshRunner(str(node.address), key=private, sudo=True, known_hosts=known_hosts)


class NodeShells:
    def __init__(self, connect: Connect, known_hosts: Path) -> None:
        self._connect = connect
        self._known_hosts = known_hosts

    def run(self, node: ClusterNode, command: Sequence[str], stdin: bytes | None, timeout_seconds: float) -> Done:
        return as_done(self._connect(node).run(command, timeout_seconds, stdin))

    def read(self, node: ClusterNode, path: str) -> bytes | None:
        done = self.run(node, ["sh", "-c", READ, "sh", path], None, READ_SECONDS)
        if done.exit_code == _NO_FILE:
            return None
        try:
            return base64.b64decode(_checked(node, done, f"cat {shlex.quote(path)}").stdout, validate=True)
        except binascii.Error:
            why = "the output is not base64"
            raise HardwayError(
                "UMB734", f"could not read {path} on {node.id}", why, "run the same command again"
            ) from None

    def write(self, node: ClusterNode, path: str, content: bytes, mode: int) -> None:
        done = self.run(node, ["sh", "-c", WRITE, "sh", f"{mode:04o}", path], content, READ_SECONDS)
        _checked(node, done, f"ls -ld {shlex.quote(path)}")

    def forget(self, node: ClusterNode) -> None:
        """Delete the host key of a removed machine: the next one has another."""
        (self._known_hosts / node.id).unlink(missing_ok=True)


def _checked(node: ClusterNode, done: Done, by_hand: str) -> Done:
    if done.exit_code != 0:
        what = f"a command failed on {node.id}"
        raise HardwayError("UMB734", what, done.complaint, f"ssh core@{node.address} sudo {by_hand}")
    return done


INSTALL_SECONDS: Final = 1800.0
"""Time for writing 3 GB to a slow disk, a reboot, and Ignition."""
CUSTOMIZE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 5.0
_FOR_OWNER: Final = ("sh", "-c", 'umask 077; exec "$@"', "sh")
"""Prefix of a command: its output files are never readable by others."""
IGNITION_RESULT: Final = "/etc/.ignition-result.json"
SERVICES: Final = ("crio", "kubelet")


class LibvirtMachines:
    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        host: Host | None = None,
        connect: Connect | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if cluster.libvirt is None:
            why = "cluster.yaml has no section libvirt"
            raise HardwayError(
                "UMB733", "could not set up libvirt machines", why, "set machines: libvirt in cluster.yaml"
            )
        self._record = record = folder / RECORD
        self._cluster = cluster
        self._libvirt: Libvirt = cluster.libvirt
        self._host = host or ThisHost()
        self._virsh = Virsh(self._host, clock, sleep)
        self._plan = HostPlan(self._host, record / PLAN_RECORD)
        self._balancer = BalancerService(self._host)
        self._nodes = NodeShells(connect or connect_by_ssh(record, cluster.access.ssh_key_file), record / KNOWN_HOSTS)
        self._clock = clock
        self._sleep = sleep

    @property
    def kind(self) -> str:
        return "libvirt"

    def survey(self, cluster: Cluster) -> Survey:
        return inspection.survey(self._host, self._libvirt)

    def build(self, cluster: Cluster, infrastructure: Mapping[str, bytes]) -> None:
        self._virsh.make_pool(self._libvirt.pool, self._libvirt.pool_directory)
        self._virsh.make_network(self._libvirt.network, infrastructure[places.NETWORK])
        # VIPs are on the network's bridge, so the plan follows it, also after a restart.
        self._plan.apply(read_plan(infrastructure[places.HOST_PLAN]))
        certificates = {name: content for name, content in infrastructure.items() if name.endswith(".crt")}
        self._balancer.begin(infrastructure[places.HAPROXY_BOOTSTRAP], certificates)
        for node in cluster.nodes:
            self._virsh.define(infrastructure[places.domain_file(node)])

    def inspect(self, cluster: Cluster) -> list[InfraProbe]:
        return inspection.inspect(self._host, cluster, self._libvirt, self._plan)

    def enter(self) -> None:
        """The host is on the machine network already."""

    def power(self, node_id: str) -> Power:
        return self._virsh.power(self._places(node_id).domain)

    def install(self, node_id: str, ignition: bytes) -> None:
        """Make a live image that installs this node, boot it with an empty disk, and wait for the node.

        Raises:
            StageTimeout: the node did not come up (UMB731).
            HardwayError: the machine was installed with another config (UMB737).
        """
        node, place = self._node(node_id), self._places(node_id)
        self._refuse_another(node_id, place, ignition)
        self.remove(node_id)
        put(self._host, place.ignition, ignition, 0o600)
        # With mode 0600: the image holds the node's keys. libvirt gives it to qemu at the start.
        for command in install_commands(self._cluster, self._libvirt, node):
            do(self._host, *_FOR_OWNER, *command, timeout_seconds=CUSTOMIZE_SECONDS)
        # While it is empty: it will hold the node's keys, and libvirt changes only the owner.
        do(self._host, "chmod", "0600", place.disk)
        self._virsh.define(domain_xml(self._cluster, self._libvirt, node))
        self._virsh.start(place.domain)
        self._await(node, place.domain)
        # Last: a run that was killed before this installs the machine again.
        put(self._host, _mark(place), _digest(ignition).encode(), 0o644)

    def is_installed(self, node_id: str, ignition: bytes) -> bool:
        is_same = self._installed(self._places(node_id)) == _digest(ignition)
        return is_same and self.power(node_id) is not Power.ABSENT

    def start(self, node_id: str) -> None:
        self._virsh.start(self._places(node_id).domain)

    def failed_services(self, node_id: str) -> list[str]:
        done = self.run(node_id, ["systemctl", "is-failed", *SERVICES])
        return [name for name, state in zip(SERVICES, done.text.split(), strict=False) if state == "failed"]

    def stop(self, node_id: str) -> None:
        self._virsh.stop(self._places(node_id).domain)

    def remove(self, node_id: str) -> None:
        place = self._places(node_id)
        self._virsh.remove(place.domain)
        do(self._host, "rm", "-f", "--", _mark(place), place.disk, place.iso, place.ignition)
        self._nodes.forget(self._node(node_id))

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        return self._nodes.run(self._node(node_id), command, stdin, timeout_seconds)

    def shell(self, node_id: str, command: Sequence[str]) -> list[str]:
        runner = ssh_runner(self._record, self._cluster.access.ssh_key_file, self._node(node_id))
        return runner.terminal_command(command)

    def load_image(self, node_id: str, archive: Path) -> list[str]:
        """Raises HardwayError: UMB772, always: these machines pull their images."""
        why = "virtual machines pull images from registries"
        raise HardwayError("UMB772", f"{archive} was not loaded onto {node_id}", why, "push it to a registry")

    def read(self, node_id: str, path: str) -> bytes | None:
        return self._nodes.read(self._node(node_id), path)

    def write(self, node_id: str, path: str, content: bytes, mode: int = 0o600) -> None:
        self._nodes.write(self._node(node_id), path, content, mode)

    def set_balancer(self, config: bytes) -> None:
        self._balancer.use(config)

    def balancer(self) -> list[BackendServer]:
        return self._balancer.servers()

    def destroy(self) -> None:
        for node in self._cluster.nodes:
            self.remove(node.id)
        self._balancer.give_back()
        self._plan.undo()
        self._virsh.remove_network(self._libvirt.network)
        self._virsh.remove_pool(self._libvirt.pool)

    def _node(self, node_id: str) -> ClusterNode:
        return self._cluster.node(node_id)

    def _places(self, node_id: str) -> places.MachinePlaces:
        return places.machine_places(self._cluster, self._libvirt, self._node(node_id))

    def _installed(self, place: places.MachinePlaces) -> str:
        """Return the hash of the config of the finished installation; empty if none."""
        done = self._host.run(["cat", _mark(place)])
        return done.text.strip() if done.exit_code == 0 else ""

    def _refuse_another(self, node_id: str, place: places.MachinePlaces, ignition: bytes) -> None:
        """A master's disk may hold the only copy of etcd, so new keys or an edited config must not wipe it."""
        if self._installed(place) not in ("", _digest(ignition)):
            why = "another Ignition config was installed, and Ignition runs only at the first boot"
            remedy = "delete the machine and its disk first: umbilical stage rollback"
            raise HardwayError("UMB737", f"{node_id} was not installed: the machine exists already", why, remedy)

    def _await(self, node: ClusterNode, domain: str) -> None:
        """Wait until the installed system answers; start it if it powered off after the installation."""
        end = self._clock() + INSTALL_SECONDS
        while (seen := self._seen(node)) != "":
            if self._clock() >= end:
                what = f"timed out after {INSTALL_SECONDS:.0f} s waiting for {node.id} to come up"
                remedy = f"check its console: virsh console {domain}"
                raise StageTimeout("UMB731", what, seen, remedy)
            self._virsh.start(domain)
            self._sleep(POLL_SECONDS)

    def _seen(self, node: ClusterNode) -> str:
        """Return why it is not up yet; empty: it is."""
        try:
            result = self._nodes.read(node, IGNITION_RESULT)
        except Fault as fault:
            return fault.brief
        return "" if result is not None else f"{IGNITION_RESULT} does not exist yet"


def _digest(ignition: bytes) -> str:
    return hashlib.sha512(ignition).hexdigest()


def _mark(place: places.MachinePlaces) -> str:
    """Path of the file with the hash of the installed config."""
    return f"{place.ignition}.installed"
