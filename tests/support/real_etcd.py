"""Real members of etcd on addresses of loopback, each with certificates, asked by the real etcdctl."""

import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.hardway import cluster
from tests.support.live_site import on_loopback
from tests.support.recording_machines import RecordingMachines
from tests.support.static_processes import peer

from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode, ClusterProfile
from umbilical.hardway.etcd import client_url, peer_url
from umbilical.hardway.machines.interface import Done
from umbilical.host.files import write_file
from umbilical.host.processes import start
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, Usage, client_profile
from umbilical.pki.profiles import Profile as CertificateProfile

LIFE: Final = timedelta(days=1)
EC: Final = KeyType.ECDSA_P256
SECRETS: Final = (layout.NODE_SECRETS, layout.MASTER_SECRETS)


class RealEtcd:
    """Two nodes. The paths of their secrets lead into one folder, and ports are free ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = on_loopback(cluster(ClusterProfile.KUBERNETES, masters=2)).masters
        self.client_port, self.peer_port = _free_ports(str(self.nodes[0].address))
        self.machines = RecordingMachines()
        self.machines.responders.append(self._etcdctl)
        self._processes = ExitStack()
        self._write_certificates()

    def __enter__(self) -> "RealEtcd":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def start(self, node: ClusterNode, state: str, members: Sequence[ClusterNode]) -> None:
        files = self.folder
        flags = [
            f"--name={node.name}",
            f"--data-dir={files / node.id}",
            f"--listen-client-urls={client_url(node)}",
            f"--advertise-client-urls={client_url(node)}",
            f"--listen-peer-urls={peer_url(node)}",
            f"--initial-advertise-peer-urls={peer_url(node)}",
            f"--initial-cluster={','.join(f'{one.name}={peer_url(one)}' for one in members)}",
            f"--initial-cluster-state={state}",
            "--unsafe-no-fsync",
            "--client-cert-auth=true",
            "--peer-client-cert-auth=true",
        ]
        for prefix in ("", "peer-"):
            flags += [f"--{prefix}trusted-ca-file={files / 'etcd-ca-bundle.crt'}"]
            flags += [f"--{prefix}cert-file={files / 'member.crt'}", f"--{prefix}key-file={files / 'member.key'}"]
        child = start([peer("etcd"), *flags], files / f"{node.id}.log", name="etcd")
        self._processes.enter_context(child)

    def _etcdctl(self, node_id: str, command: tuple[str, ...], stdin: bytes) -> Done | None:
        words = list(command[1:])
        for place in SECRETS:
            words = [word.replace(place, str(self.folder)) for word in words]
        command = (peer("etcdctl"), "--command-timeout=3s", *words)
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def _write_certificates(self) -> None:
        now = datetime.now(UTC)
        authority = Authority.create("etcd-signer", now, LIFE, KeyType.ECDSA_P256)
        addresses = tuple(node.address for node in self.nodes)
        both = (Usage.SERVER, Usage.CLIENT)
        member = authority.issue(CertificateProfile("member", both, (), ("localhost",), addresses, EC), now, LIFE)
        client = authority.issue(client_profile("etcd-client", key_type=EC), now, LIFE)
        write_file(self.folder / "etcd-ca-bundle.crt", authority.certificate_pem)
        for name, pair in (("member", member), ("etcd-client", client)):
            write_file(self.folder / f"{name}.crt", pair.certificate)
            write_file(self.folder / f"{name}.key", pair.key)


def _free_ports(address: str) -> tuple[int, int]:
    with socket.create_server((address, 0)) as one, socket.create_server((address, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]
