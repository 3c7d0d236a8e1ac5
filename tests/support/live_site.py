"""Sites of running clusters: machines that record commands, a real API, and simulated time."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from tests.support import hardway
from tests.support.control_plane import ControlPlane
from tests.support.hardway_everything import usual
from tests.support.made_up_stages import Lines
from tests.support.recording_machines import RecordingMachines

from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import Cluster, ClusterProfile
from umbilical.hardway.machines.interface import PORTS, BackendServer, Done, Power
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.site import Site
from umbilical.manifests.tree import Asset
from umbilical.pki.certificate import read_certificates

FAR = datetime(2030, 1, 1, tzinfo=UTC)
KUBERNETES = ClusterProfile.KUBERNETES
OPENSHIFT = ClusterProfile.OPENSHIFT


class Naps:
    """Sleeps that take no time; each lets one thing happen, in the order in which they were planned."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.plans: list[Callable[[], object]] = []

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        if self.plans:
            self.plans.pop(0)()
        else:
            time.sleep(0.01)


def on_loopback(cluster: Cluster) -> Cluster:
    """The same cluster with its machines on loopback addresses."""

    def here(address: object) -> Any:
        return ip_address("127.0." + ".".join(str(address).split(".")[2:]))

    return replace(cluster, nodes=tuple(replace(node, address=here(node.address)) for node in cluster.nodes))


def _ends_soon(asset: Asset) -> bool:
    """The tests' certificates are of one day in the past or future; a site here lives now, whenever that is."""
    if not asset.path.endswith(".crt"):
        return False
    return any(one.not_after < FAR for one in read_certificates(asset.content))


def live_site(
    folder: Path,
    plane: ControlPlane | None = None,
    profile: ClusterProfile = KUBERNETES,
    masters: int = 1,
    workers: int = 1,
) -> Site:
    """Every API server of this cluster is the one of `plane`, its administrator is system:admin as the config says.

    Without a plane nobody answers. The load balancer is on loopback, where whoever dials it finds nobody by default.
    """
    of = hardway.cluster(profile, masters, workers)
    subject = usual(profile, masters, workers)
    assets = {path: asset for path, asset in subject.assets.items() if not _ends_soon(asset)}
    admin = folder / "nobody.kubeconfig"
    if plane is not None:
        admin = plane.make_kubeconfig("system:admin", "system:masters")
        for bundle in (Bundle.SERVER_CA, Bundle.KUBELET_CA):
            path = layout.bundle(bundle.value)
            assets[path] = Asset(path, plane.authority.certificate_pem, 0o644)
    return Site(
        cluster=replace(of, networks=replace(of.networks, api_vip=ip_address("127.0.0.1"))),
        folder=folder,
        assets=assets,
        hashes={"manifests": "one"},
        has_tunnel=subject.has_tunnel,
        machines=RecordingMachines(),
        reporter=Lines(),
        now=lambda: datetime.now(UTC),
        kubeconfig=lambda address: admin,
        sleep=Naps(),
    )


def machines_of(site: Site) -> RecordingMachines:
    assert isinstance(site.machines, RecordingMachines)
    return site.machines


def naps_of(site: Site) -> Naps:
    assert isinstance(site.sleep, Naps)
    return site.sleep


def told_by(site: Site) -> list[str]:
    assert isinstance(site.reporter, Lines)
    return site.reporter.lines


def seen_by(site: Site) -> list[str]:
    """Observations of waits."""
    assert isinstance(site.reporter, Lines)
    return [moment.seen for moment in site.reporter.waits]


def switch_on(site: Site) -> None:
    """All machines run from their configs, and the load balancer sees every API server up."""
    machines = machines_of(site)
    for node in site.cluster.nodes:
        machines.installed[node.id] = site.content(layout.ignition(node))
        machines.powers[node.id] = Power.ON
        machines.files[node.id, "/etc/hostname"] = f"{node.name}\n".encode()
    servers = (site.cluster.bootstrap, *site.cluster.masters)
    machines.servers = [BackendServer("api", node.name, True, "L7OK") for node in servers]


def changing(site: Site) -> list[str]:
    """What was asked of the machines that changes something."""
    harmless = ("survey", "inspect", "enter", "run bootstrap etcdctl", "run master-0 etcdctl", "run master-0 curl")
    calls = [call for call in machines_of(site).calls if "/dev/tcp/" not in call]
    return [call for call in calls if not call.startswith(harmless) or " snapshot " in call]


class StaticPods:
    """A kubelet that runs the files of its directory: a responder of recording machines."""

    def __init__(self, *running: str) -> None:
        self.running = set(running)
        self.lingering: dict[str, int] = {}
        """Program -> how often it is still found after its file is gone."""

    def __call__(self, node_id: str, command: tuple[str, ...], stdin: bytes) -> Done | None:
        if command[:2] == ("rm", "-f"):
            name = command[2].rpartition("/")[2].removesuffix(".yaml").removesuffix("-bootstrap")
            if not self.lingering.get(name):
                self.running.discard(name)
            return Done(0, b"", b"")
        if command[0] == "bash" and "/dev/tcp/" in command[2]:
            program = next(name for name, port in PORTS.items() if str(port) == command[-1])
            return self._listening(program)
        return None

    def _listening(self, program: str) -> Done:
        if program in self.lingering:
            self.lingering[program] -= 1
            if self.lingering[program] <= 0:
                self.running.discard(program)
        return Done(0 if program in self.running else 1, b"", b"")
