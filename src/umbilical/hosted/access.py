"""How a command enters the tunnel as a client: server and TLS files, given, or out of a control plane's namespace."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.cluster.client import make_client
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.fault import HostedError
from umbilical.hosted.namespace_credentials import FRONTEND, KUBELET, fetch_tls, private_directory
from umbilical.hosted.objects.names import FRONTEND_PORT, SERVER_LOCAL
from umbilical.hosted.port_forward import port_forward
from umbilical.tunnel.settings import TlsFiles

NO_FILES: Final = TlsFiles()
REQUESTS_PER_SECOND: Final = 50.0
BURST: Final = 300
"""What kubectl allows itself: somebody waits for these commands, and they end."""


@dataclass(frozen=True)
class AccessRequest:
    """What the user said. Either files with a server, or a namespace, in which what is missing is looked up."""

    server: UnixServer | TcpServer | None = None
    tls: TlsFiles = NO_FILES
    namespace: str | None = None
    kubeconfig: Path | None = None
    server_name: str = ""
    protocol: Protocol = Protocol.HTTP_CONNECT
    needs_kubelet: bool = False
    """Fetch the kubelets' credentials too."""


@dataclass(frozen=True)
class Access:
    server: UnixServer | TcpServer
    tls: TlsFiles
    protocol: Protocol = Protocol.HTTP_CONNECT
    kubelet: TlsFiles | None = None
    name: str = ""
    """Where the address says little: a pod behind a forwarded port."""

    @property
    def title(self) -> str:
        return self.name or server_title(self.server)

    def dialer_settings(self, hop_seconds: float) -> DialerSettings:
        """Give every hop the same time."""
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
def open_access(request: AccessRequest) -> Iterator[Access]:
    """Have all that is needed at hand; what was fetched is gone afterwards, and a forwarded port closed.

    Raises:
        HostedError: something is missing.
        ClusterError: the API refuses, or does not answer.
    """
    if request.namespace is None:
        yield Access(_given_server(request), _checked_files(request), request.protocol)
        return
    with private_directory() as folder:
        tls, kubelet = asyncio.run(_fetch(request, request.namespace, folder))
        if request.server is not None:
            yield Access(request.server, tls, request.protocol, kubelet)
            return
        assert request.kubeconfig is not None, "the command line asks for it"
        log = folder / "port-forward.log"
        with port_forward(request.kubeconfig, request.namespace, f"svc/{SERVER_LOCAL}", FRONTEND_PORT, log) as port:
            server = TcpServer("127.0.0.1", port, request.server_name or SERVER_LOCAL)
            yield Access(server, tls, request.protocol, kubelet)


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
            "it is not said where the tunnel begins",
            "there is neither a server nor a control plane's namespace",
            "--server HOST:PORT with --ca, --cert and --key; or --namespace NAME with --kubeconfig FILE",
        )
    return request.server


def _checked_files(request: AccessRequest) -> TlsFiles:
    if isinstance(request.server, TcpServer) and request.tls.authority is None:
        raise HostedError(
            "UMB573",
            f"no CA to verify {server_title(request.server)} by",
            "a server on TCP speaks TLS, and a client that trusts anybody proves nothing",
            "--ca FILE, the konnectivity-ca-bundle; and --cert and --key of a client",
        )
    return request.tls
