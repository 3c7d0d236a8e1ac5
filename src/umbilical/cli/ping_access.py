"""Options of `ping`, `proxy curl` and `hosted check` that say how to get into the tunnel."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, Command, server_place, tls_files
from umbilical.dialer.settings import Protocol, TcpServer, UnixServer

if TYPE_CHECKING:
    from umbilical.hosted.access import AccessRequest

_OPTIONS: Final = (
    click.option(
        "--server", type=server_place, metavar="HOST:PORT|unix:PATH", help="The server's port for clients, or socket."
    ),
    click.option("--ca", type=FILE, help="CA of the server's certificate; needed for HOST:PORT."),
    click.option("--cert", type=FILE, help="A client's certificate for the server."),
    click.option("--key", type=FILE, help="Its key."),
    click.option("--server-name", default="", metavar="NAME", help="Whom the server's certificate must be for."),
    click.option(
        "--protocol",
        type=click.Choice([protocol.value for protocol in Protocol]),
        default=Protocol.HTTP_CONNECT.value,
        show_default=True,
        help="What the server speaks with clients.",
    ),
    click.option("-n", "--namespace", metavar="NAME", help="A control plane's namespace: take all this from there."),
    click.option("--kubeconfig", type=FILE, help="With --namespace: of the management cluster; else $KUBECONFIG."),
)


def access_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def access_request(options: dict[str, Any], *, needs_kubelet: bool = False) -> "AccessRequest":
    """Check what can be checked without asking anybody."""
    from umbilical.hosted.access import AccessRequest

    namespace, kubeconfig = options["namespace"], options["kubeconfig"]
    if kubeconfig is not None and namespace is None:
        raise click.UsageError("--kubeconfig goes with --namespace: which control plane is it?")
    if namespace is not None and kubeconfig is None:
        kubeconfig = _kubeconfig_of_environment()
    if namespace is not None and kubeconfig is None and options["server"] is None:
        raise click.UsageError("--namespace needs --kubeconfig or $KUBECONFIG, or --server where this runs as a pod")
    return AccessRequest(
        server=_named(options["server"], options["server_name"]),
        tls=tls_files("", options["cert"], options["key"], options["ca"]),
        namespace=namespace,
        kubeconfig=kubeconfig,
        server_name=options["server_name"],
        protocol=Protocol(options["protocol"]),
        needs_kubelet=needs_kubelet,
    )


def _kubeconfig_of_environment() -> Path | None:
    """Of several files the first, which kubectl prefers as well where two contradict each other."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else None


def _named(server: UnixServer | TcpServer | None, name: str) -> UnixServer | TcpServer | None:
    return TcpServer(server.host, server.port, name) if isinstance(server, TcpServer) else server
