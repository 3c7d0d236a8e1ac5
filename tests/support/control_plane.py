"""A real etcd and kube-apiserver for a test: started with certificates of our own authority, stopped at the end.

In the network namespace we run in (free ports) or in a given one (the usual ports). A test that uses it is marked
`@pytest.mark.real("etcd", "kube-apiserver", "kubectl")`. There is no controller-manager: service accounts and
tokens exist when a test makes them, and the admission plugin that waits for default ones is off.
"""

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tests.support.netns import Namespace

import peers
from umbilical.fault import HostError
from umbilical.host.files import make_directory, write_file, write_public
from umbilical.host.processes import Child, run, start
from umbilical.manifests.objects import kubeconfig
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile, client_profile, server_profile

PROGRAMS: Final = ("etcd", "kube-apiserver", "kubectl")
KONNECTIVITY_AUDIENCE: Final = "system:konnectivity-server"
READY_SECONDS: Final = 90.0
KUBECTL_SECONDS: Final = 60.0
LIFETIME: Final = timedelta(days=1)
_ISSUER: Final = "https://kubernetes.default.svc"
_SERVICE_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")


@dataclass(frozen=True)
class Ports:
    api: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380


class ControlPlane:
    """The running pair. `kubeconfig` belongs to a member of system:masters."""

    def __init__(
        self,
        folder: Path,
        namespace: Namespace | None = None,
        address: str = "127.0.0.1",
        apiserver_arguments: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        self.folder = make_directory(folder)
        self.namespace = namespace
        self.authority = Authority.create("umbilical test CA", datetime.now(UTC), LIFETIME, KeyType.ECDSA_P256)
        self._address = address
        self._ports = _free_ports() if namespace is None else Ports()
        self._arguments = list(apiserver_arguments)
        self._names = names
        self.port = self._ports.api
        self.url = f"https://{address}:{self.port}"
        self._write_credentials()
        self.kubeconfig = self.make_kubeconfig("admin", "system:masters")
        self.etcd: Child | None = None
        self.apiserver: Child | None = None

    def start(self) -> None:
        """Start both and return when the API is ready."""
        self.etcd = self._start("etcd", self._etcd_arguments())
        self.start_apiserver()

    def start_apiserver(self, *more_arguments: str) -> None:
        """Start the API server (again), with more arguments from now on if a test gives some."""
        self._arguments += more_arguments
        self.apiserver = self._start("kube-apiserver", self._apiserver_arguments())
        self.apiserver.wait_ready(self._is_ready, READY_SECONDS, poll_seconds=0.3)

    def stop_apiserver(self) -> None:
        if self.apiserver is not None:
            # Watches keep a graceful stop waiting for a minute; nothing here is worth it.
            self.apiserver.stop(timeout_seconds=2)

    def stop(self) -> None:
        self.stop_apiserver()
        if self.etcd is not None:
            self.etcd.stop(timeout_seconds=5)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run the real kubectl as admin and return what it printed.

        Raises:
            HostError: it failed; `why` is what it said.
        """
        command = [_program("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(self._inside(command), KUBECTL_SECONDS, None if stdin is None else stdin.encode())

    def apply(self, *manifests: dict[str, object]) -> str:
        """Create or change objects, given as dicts."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        return self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def service_account_token(self, namespace: str, name: str, audience: str = KONNECTIVITY_AUDIENCE) -> str:
        """Have the API server sign a token for a service account that exists."""
        return self.kubectl("-n", namespace, "create", "token", name, f"--audience={audience}").strip()

    def issue(self, profile: Profile) -> KeyPair:
        return self.authority.issue(profile, datetime.now(UTC), LIFETIME)

    def make_kubeconfig(self, user: str, *groups: str) -> Path:
        """Write a kubeconfig (mode 0600) for a new user certificate; what it may do is RBAC's decision."""
        pair = self.issue(client_profile(user, groups, KeyType.ECDSA_P256))
        content = kubeconfig(user, self.url, self.authority.certificate_pem, pair)
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        return write_file(path, json.dumps(content).encode(), overwrite=True)

    def _is_ready(self) -> bool:
        try:
            self.kubectl("get", "--raw=/readyz")
            # Made by a loop of the API server itself, a moment after it calls itself ready.
            self.kubectl("get", "namespace", "default", "kube-system")
        except HostError:
            return False
        return True

    def _start(self, name: str, arguments: list[str]) -> Child:
        return start(self._inside([_program(name), *arguments]), self.folder / f"{name}.log", name=name)

    def _inside(self, command: list[str]) -> list[str]:
        return command if self.namespace is None else self.namespace.command(*command)

    def _write_credentials(self) -> None:
        names = (self._address, "127.0.0.1", *_SERVICE_NAMES, *self._names)
        serving = self.issue(server_profile("kube-apiserver", names, KeyType.ECDSA_P256))
        signer = self.issue(client_profile("service-account-signer", key_type=KeyType.RSA_2048))
        write_public(self.folder / "ca.crt", self.authority.certificate_pem, overwrite=True)
        write_public(self.folder / "apiserver.crt", serving.certificate, overwrite=True)
        write_file(self.folder / "apiserver.key", serving.key, overwrite=True)
        write_file(self.folder / "service-accounts.key", signer.key, overwrite=True)

    def _etcd_arguments(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._ports.etcd, self._ports.etcd_peer))
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # What a test stored need not survive a power cut, and fsync is most of its time.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_arguments(self) -> list[str]:
        files = self.folder
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports.etcd}",
            f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--secure-port={self._ports.api}",
            f"--tls-cert-file={files / 'apiserver.crt'}",
            f"--tls-private-key-file={files / 'apiserver.key'}",
            f"--client-ca-file={files / 'ca.crt'}",
            f"--service-account-key-file={files / 'service-accounts.key'}",
            f"--service-account-signing-key-file={files / 'service-accounts.key'}",
            f"--service-account-issuer={_ISSUER}",
            f"--api-audiences={_ISSUER},{KONNECTIVITY_AUDIENCE}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            # Dial the addresses of endpoints, not the cluster IP: there is no kube-proxy here.
            "--enable-aggregator-routing=true",
            # A loopback address may not become an endpoint of the `kubernetes` service.
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
            *self._arguments,
        ]


@contextmanager
def control_plane(
    folder: Path,
    *,
    namespace: Namespace | None = None,
    address: str = "127.0.0.1",
    egress_selector_config: Path | None = None,
    apiserver_arguments: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Iterator[ControlPlane]:
    """Run a control plane; `address` is where the API listens, inside `namespace` if one is given.

    `names` are more names that its certificate has.
    """
    egress = [] if egress_selector_config is None else [f"--egress-selector-config-file={egress_selector_config}"]
    plane = ControlPlane(folder, namespace, address, [*egress, *apiserver_arguments], names)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def _program(name: str) -> str:
    path = peers.binary(name)
    assert path is not None, f"no {name} in the cache: run `make peers`"
    return str(path)


def _free_ports() -> Ports:
    """Ask the kernel for three ports at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    try:
        api, etcd, etcd_peer = (listener.getsockname()[1] for listener in sockets)
        return Ports(api, etcd, etcd_peer)
    finally:
        for listener in sockets:
            listener.close()
