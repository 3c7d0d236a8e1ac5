"""Options that `umbilical proxy socks5` and `umbilical proxy https` share, and the settings that they become."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli.options import (
    FILE,
    LOGGING,
    SocketPath,
    address,
    check_readable,
    duration,
    listen_place,
    missing_option,
)
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.fault import StartupError
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import LOOPBACK, ListenerSettings, OutboundSettings, Resolution
from umbilical.tunnel.settings import ListenAddress, TlsFiles

Command = Callable[..., Any]

_NEEDS_DNS: Final = (Resolution.GUEST, Resolution.GUEST_THEN_MANAGEMENT)


def server_place(text: str) -> UnixServer | TcpServer:
    """Read `unix:PATH` or `HOST:PORT`; nothing may be left out."""
    place = listen_place(text)
    if isinstance(place, SocketPath):
        return UnixServer(place.path)
    if not place.host or not place.port:
        raise click.BadParameter(f"{text!r} names no host or no port")
    return TcpServer(place.host, place.port)


def _seconds(flag: str, default: str, help: str) -> Callable[[Command], Command]:
    return click.option(flag, type=duration, default=default, show_default=True, help=help)


_SERVER: Final = (
    click.option(
        "--server",
        type=server_place,
        metavar="HOST:PORT|unix:PATH",
        multiple=True,
        required=True,
        help="A server's port for clients; repeatable, tried in this order.",
    ),
    click.option(
        "--protocol",
        type=click.Choice([protocol.value for protocol in Protocol]),
        default=Protocol.HTTP_CONNECT.value,
        show_default=True,
        help="What the servers speak with clients.",
    ),
    click.option("--ca", type=FILE, help="CA of the servers' certificates; needed for HOST:PORT."),
    click.option("--cert", type=FILE, help="The certificate to show to the servers."),
    click.option("--key", type=FILE, help="Its key."),
    click.option("--server-name", default="", help="Whom the servers' certificate is for, if not for HOST."),
)
_NAMES: Final = (
    click.option(
        "--resolve",
        type=click.Choice([resolution.value for resolution in Resolution]),
        help="Who turns names into addresses; guest if --guest-dns or --kubeconfig is given, else agent.",
    ),
    click.option("--guest-dns", multiple=True, metavar="IP[:PORT]", help="The hosted cluster's DNS; repeatable."),
    click.option(
        "--guest-dns-service",
        default=OutboundSettings(DialerSettings(())).guest_dns_service,
        show_default=True,
        metavar="NAMESPACE/NAME",
        help="The Service of that DNS, looked up with --kubeconfig.",
    ),
    click.option("--kubeconfig", type=FILE, help="Of the hosted cluster; it may get Services and nothing else."),
    click.option("--cluster-domain", default="cluster.local", show_default=True, help="Of the hosted cluster."),
    click.option("--prefer-ipv4", is_flag=True, help="Use IPv6 addresses of a name only if it has no others."),
    click.option(
        "--direct-suffix",
        multiple=True,
        metavar="DOMAIN",
        help="Hosts below it leave by this machine's own network and HTTPS_PROXY; repeatable.",
    ),
    click.option("--direct-to-cloud-apis", is_flag=True, help="The same for the APIs of well-known clouds."),
    click.option(
        "--never-direct",
        multiple=True,
        metavar="HOST",
        help="But not this one, also while the tunnel is broken; repeatable.",
    ),
)
_LIMITS: Final = (
    click.option("--health", type=address, metavar="HOST:PORT", help="Liveness, readiness and metrics; none if unset."),
    click.option(
        "--max-connections",
        type=click.IntRange(min=1),
        default=ListenerSettings(()).max_connections,
        show_default=True,
        help="More clients are closed at once.",
    ),
    _seconds("--handshake-timeout", "30s", "For a client to say what it wants."),
    _seconds("--idle-timeout", "1h", "Close a connection that moves nothing for so long; 0s is never."),
    _seconds("--drain", "30s", "After SIGTERM, wait so long for open connections."),
    _seconds("--connect-timeout", "10s", "For TCP to one address of a server."),
    _seconds("--tls-timeout", "10s", "For the handshake with it."),
    _seconds("--reply-timeout", "30s", "For the server's word on a dial."),
)


def proxy_options(port: int) -> Callable[[Command], Command]:
    """All shared options; `port` is where the command listens on both loopbacks unless told otherwise."""
    listen = click.option(
        "--listen",
        type=address,
        metavar="HOST:PORT",
        multiple=True,
        help=f"Where clients connect; repeatable.  [default: 127.0.0.1:{port} and [::1]:{port}]",
    )

    def decorate(command: Command) -> Command:
        for option in reversed((listen, *_SERVER, *_NAMES, *_LIMITS, *LOGGING)):
            command = option(command)
        return command

    return decorate


def listener_settings(options: dict[str, Any], port: int) -> ListenerSettings:
    given = tuple(dict.fromkeys(options["listen"]))
    return ListenerSettings(
        listen=given or loopback(port),
        ipv6_if_there=not given,
        health=options["health"],
        max_connections=options["max_connections"],
        handshake_seconds=options["handshake_timeout"],
        idle_seconds=options["idle_timeout"],
        drain_seconds=options["drain"],
    )


def loopback(port: int) -> tuple[ListenAddress, ...]:
    return tuple(ListenAddress(host, port) for host in LOOPBACK)


def outbound_settings(options: dict[str, Any], command: str) -> OutboundSettings:
    """`command` names the command in errors. Certificate files are not looked at: they may come later."""
    check_readable(options["kubeconfig"])
    return OutboundSettings(
        dialer=_dialer_settings(options, command),
        resolution=_resolution(options, command),
        guest_dns=tuple(options["guest_dns"]),
        guest_dns_service=options["guest_dns_service"],
        cluster_domain=options["cluster_domain"],
        kubeconfig=options["kubeconfig"],
        prefer_ipv4=options["prefer_ipv4"],
        direct_suffixes=(*options["direct_suffix"], *(CLOUD_SUFFIXES if options["direct_to_cloud_apis"] else ())),
        never_direct=tuple(options["never_direct"]),
    )


def _dialer_settings(options: dict[str, Any], command: str) -> DialerSettings:
    servers = tuple(_named(server, options["server_name"]) for server in dict.fromkeys(options["server"]))
    if options["ca"] is None and any(isinstance(server, TcpServer) for server in servers):
        raise missing_option(command, "--ca", "a server that is reached by TCP has to show who it is")
    return DialerSettings(
        servers=servers,
        tls=_pair(options["cert"], options["key"], options["ca"]),
        protocol=Protocol(options["protocol"]),
        connect_seconds=options["connect_timeout"],
        tls_seconds=options["tls_timeout"],
        reply_seconds=options["reply_timeout"],
    )


def _named(server: UnixServer | TcpServer, name: str) -> UnixServer | TcpServer:
    return TcpServer(server.host, server.port, name) if isinstance(server, TcpServer) else server


def _pair(certificate: Path | None, key: Path | None, authority: Path | None) -> TlsFiles:
    if (certificate is None) != (key is None):
        given, missing = ("key", "cert") if certificate is None else ("cert", "key")
        why = "a certificate and its key are used together or not at all"
        raise StartupError("UMB003", f"--{given} without --{missing}", why, f"add --{missing} FILE")
    return TlsFiles(certificate, key, authority)


def _resolution(options: dict[str, Any], command: str) -> Resolution:
    known = bool(options["guest_dns"] or options["kubeconfig"])
    if options["resolve"] is None:
        return Resolution.GUEST if known else Resolution.AGENT
    resolution = Resolution(options["resolve"])
    if resolution is Resolution.SERVICE and options["kubeconfig"] is None:
        why = f"--resolve {resolution.value} asks the hosted cluster's API for Services"
        raise missing_option(command, "--kubeconfig", why)
    if resolution in _NEEDS_DNS and not known:
        why = f"--resolve {resolution.value} has to know where the hosted cluster's DNS is"
        raise missing_option(command, "--guest-dns or --kubeconfig", why)
    return resolution
