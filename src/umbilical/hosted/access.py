"""How a command reaches the tunnel as a client: with a given server and TLS files, or with those of a control plane's
namespace, kept in a private directory; from outside the network through `kubectl port-forward` as a child process.
"""

import asyncio
import base64
import binascii
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.cluster.objects import CONFIG_MAP, SECRET, ApiKind
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.fault import HostedError, HostError
from umbilical.host.files import write_file
from umbilical.host.processes import Child, Interrupts, start
from umbilical.hosted.objects import names
from umbilical.hosted.objects.names import FRONTEND_PORT, SERVER_LOCAL
from umbilical.tunnel.settings import TlsFiles

READY_SECONDS: Final = 30.0
PROGRAMS: Final = ("kubectl", "oc")
_LINE: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")


@contextmanager
def port_forward(kubeconfig: Path, namespace: str, subject: str, port: int, log: Path) -> Iterator[int]:
    """Forward a port of `subject` (`svc/NAME`, `pod/NAME`); yield the local port. Raises HostedError."""
    command = [
        *(_program(), "port-forward", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
        *("--address=127.0.0.1", subject, f":{port}"),
    ]
    try:
        child = start(command, log, name=f"port-forward to {subject}")
    except HostError as fault:
        raise _failed(namespace, subject, fault.why) from None
    with child:
        yield _wait(child, namespace, subject)


def _program() -> str:
    found = next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise HostedError(
            "UMB571",
            "the server's port could not be forwarded",
            f"neither {' nor '.join(PROGRAMS)} is on PATH",
            "install kubectl; or run this where the server is reachable, with --server HOST:PORT",
        )
    return found


def _wait(child: Child, namespace: str, subject: str) -> int:
    try:
        child.wait_ready(lambda: _LINE.search(child.log_text()) is not None, READY_SECONDS)
    except HostError:
        # The log is deleted with the private directory: the message must contain its text.
        raise _failed(namespace, subject, " | ".join(child.log_text().split("\n")[-4:]).strip(" |")) from None
    found = _LINE.search(child.log_text())
    assert found is not None
    return int(found[1])


def _failed(namespace: str, subject: str, why: str) -> HostedError:
    return HostedError(
        "UMB572",
        f"port-forward to {namespace}/{subject} failed",
        why or "it printed no message",
        f"run it by hand: kubectl -n {namespace} port-forward {subject} :PORT; or give --server HOST:PORT",
    )


KUBELET_SECRET: Final = "kas-kubelet-client-crt"
KUBELET_AUTHORITY: Final = "kubelet-client-ca"
_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"


@dataclass(frozen=True)
class CredentialNames:
    """The Secret with the key pair, and the ConfigMap with the CA that verifies the peer."""

    secret: str
    authority: str


FRONTEND: Final = CredentialNames(names.SECRET_CLIENT, names.CA_BUNDLE)
KUBELET: Final = CredentialNames(KUBELET_SECRET, KUBELET_AUTHORITY)


@contextmanager
def private_directory() -> Iterator[Path]:
    """Create a directory with mode 0700; it is deleted with its content, also on SIGTERM."""
    with (
        Interrupts() as interrupts,
        tempfile.TemporaryDirectory(prefix="umbilical-") as name,  # mode 0700
        interrupts.heard(),
    ):
        yield Path(name)


async def fetch_pair(client: ApiClient, namespace: str, name: str, folder: Path) -> TlsFiles | None:
    """Fetch a certificate and key; None without such a Secret. Raises HostedError (a key is missing), ClusterError."""
    secret = await objects.get(client, SECRET, name, namespace)
    if secret is None:
        return None
    certificate, key = (_value(secret, SECRET, name, namespace, item, _decoded) for item in (_CERTIFICATE, _KEY))
    prefix = f"{namespace}-{name}"
    return TlsFiles(
        write_file(folder / f"{prefix}-{_CERTIFICATE}", certificate), write_file(folder / f"{prefix}-{_KEY}", key)
    )


async def fetch_tls(client: ApiClient, namespace: str, purpose: CredentialNames, folder: Path) -> TlsFiles:
    """Fetch a certificate, its key and the CA. Raises HostedError (an object or key is missing), ClusterError."""
    secret = await _object(client, SECRET, purpose.secret, namespace)
    bundle = await _object(client, CONFIG_MAP, purpose.authority, namespace)
    contents = {
        _CERTIFICATE: _value(secret, SECRET, purpose.secret, namespace, _CERTIFICATE, _decoded),
        _KEY: _value(secret, SECRET, purpose.secret, namespace, _KEY, _decoded),
        names.CA_KEY: _value(bundle, CONFIG_MAP, purpose.authority, namespace, names.CA_KEY, str.encode),
    }
    files = {name: write_file(folder / f"{purpose.secret}-{name}", content) for name, content in contents.items()}
    return TlsFiles(files[_CERTIFICATE], files[_KEY], files[names.CA_KEY])


async def _object(client: ApiClient, kind: ApiKind, name: str, namespace: str) -> Json:
    found = await objects.get(client, kind, name, namespace)
    if found is None:
        raise HostedError(
            "UMB570",
            f"{kind.name} {namespace}/{name} does not exist",
            "the namespace has no hosted control plane with a tunnel, or it is not set up yet",
            f"kubectl -n {namespace} get secrets,configmaps",
        )
    return found


def _value(item: Json, kind: ApiKind, name: str, namespace: str, key: str, decode: Callable[[str], bytes]) -> bytes:
    value = objects.field(item, "data", key)
    try:
        if isinstance(value, str) and value:
            return decode(value)
        why = f"it has no key {key}"
    except (binascii.Error, ValueError):
        why = f"its {key} is not base64"
    remedy = f"kubectl -n {namespace} describe {kind.plural} {name}"
    raise HostedError("UMB570", f"{kind.name} {namespace}/{name} is invalid", why, remedy)


def _decoded(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


NO_FILES: Final = TlsFiles()
REQUESTS_PER_SECOND: Final = 50.0
BURST: Final = 300
"""kubectl's limits: these commands are interactive and short."""


@dataclass(frozen=True)
class AccessRequest:
    """What the user gave: a server with files, or a namespace from which the missing ones are read."""

    server: UnixServer | TcpServer | None = None
    tls: TlsFiles = NO_FILES
    namespace: str | None = None
    kubeconfig: Path | None = None
    server_name: str = ""
    protocol: Protocol = Protocol.HTTP_CONNECT
    needs_kubelet: bool = False
    """Fetch the kubelets' credentials too."""


@dataclass(frozen=True)
class TunnelAccess:
    server: UnixServer | TcpServer
    tls: TlsFiles
    protocol: Protocol = Protocol.HTTP_CONNECT
    kubelet: TlsFiles | None = None
    name: str = ""
    """Shown instead of the address: the pod behind a forwarded port."""

    @property
    def title(self) -> str:
        return self.name or server_title(self.server)

    def dialer_settings(self, hop_seconds: float) -> DialerSettings:
        """Use the same timeout for every hop."""
        return DialerSettings(
            servers=(self.server,),
            tls=self.tls,
            protocol=self.protocol,
            connect_seconds=hop_seconds,
            tls_seconds=hop_seconds,
            reply_seconds=hop_seconds,
        )


def server_title(server: UnixServer | TcpServer) -> str:
    if isinstance(server, UnixServer):
        return f"unix:{server.path}"
    host = f"[{server.host}]" if ":" in server.host else server.host
    name = f" ({server.server_name})" if server.server_name and server.server_name != server.host else ""
    return f"{host}:{server.port}{name}"


@contextmanager
def open_access(request: AccessRequest) -> Iterator[TunnelAccess]:
    """Fetch credentials and forward a port as needed; afterwards delete the files and close the port.

    Raises HostedError (something is missing), ClusterError.
    """
    if request.namespace is None:
        yield TunnelAccess(_given_server(request), _checked_files(request), request.protocol)
        return
    with private_directory() as folder:
        tls, kubelet = asyncio.run(_fetch(request, request.namespace, folder))
        if request.server is not None:
            yield TunnelAccess(request.server, tls, request.protocol, kubelet)
            return
        assert request.kubeconfig is not None, "the command line requires it"
        log = folder / "port-forward.log"
        with port_forward(request.kubeconfig, request.namespace, f"svc/{SERVER_LOCAL}", FRONTEND_PORT, log) as port:
            server = TcpServer("127.0.0.1", port, request.server_name or SERVER_LOCAL)
            yield TunnelAccess(server, tls, request.protocol, kubelet)


async def _fetch(request: AccessRequest, namespace: str, folder: Path) -> tuple[TlsFiles, TlsFiles | None]:
    async with make_client(request.kubeconfig) as client:
        is_given = request.tls != NO_FILES
        tls = request.tls if is_given else await fetch_tls(client, namespace, FRONTEND, folder)
        kubelet = await fetch_tls(client, namespace, KUBELET, folder) if request.needs_kubelet else None
        return tls, kubelet


def _given_server(request: AccessRequest) -> UnixServer | TcpServer:
    if request.server is None:
        raise HostedError(
            "UMB573",
            "no server was given",
            "neither --server nor --namespace is set",
            "give --server HOST:PORT with --ca, --cert and --key; or --namespace NAME with --kubeconfig FILE",
        )
    return request.server


def _checked_files(request: AccessRequest) -> TlsFiles:
    if isinstance(request.server, TcpServer) and request.tls.authority is None:
        raise HostedError(
            "UMB573",
            f"no CA was given to verify {server_title(request.server)}",
            "a server over TCP uses TLS, and its certificate must be verified",
            "give --ca FILE (ca.crt of ConfigMap konnectivity-ca-bundle), and --cert and --key of a client",
        )
    return request.tls
