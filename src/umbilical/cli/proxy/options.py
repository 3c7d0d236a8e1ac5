"""Turns the options of `umbilical proxy socks5` and `umbilical proxy https` into settings, and validates them."""

from typing import Any, Final

from umbilical.cli.options import check_readable, missing_option, named, native_values, tls_files
from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import LOOPBACK, Resolution
from umbilical.tunnel.setting_rows import Table
from umbilical.tunnel.settings import ListenAddress

_NEEDS_DNS: Final = (Resolution.HOSTED, Resolution.HOSTED_THEN_MANAGEMENT)


def proxy_values(table: Table, options: dict[str, Any], command: str, port: int) -> dict[str, Any]:
    """Return values by path. `command` is named in errors; `port` is the default port, on both loopback addresses."""
    check_readable(options["kubeconfig"])
    listen = tuple(dict.fromkeys(options["listen"]))
    cloud = CLOUD_SUFFIXES if options["direct_to_cloud_apis"] else ()
    return native_values(table, options) | {
        "listener.listen": listen or tuple(ListenAddress(host, port) for host in LOOPBACK),
        "listener.ipv6_if_there": not listen,
        "outbound.dialer.servers": _servers(options, command),
        "outbound.dialer.tls": tls_files("", options["cert"], options["key"], options["ca"], may_come_later=True),
        "outbound.dialer.protocol": Protocol(options["protocol"]),
        "outbound.resolution": _resolution(options, command),
        "outbound.direct_suffixes": (*options["direct_suffix"], *cloud),
    }


def _servers(options: dict[str, Any], command: str) -> tuple[UnixServer | TcpServer, ...]:
    servers = tuple(named(server, options["server_name"]) for server in dict.fromkeys(options["server"]))
    if options["ca"] is None and any(isinstance(server, TcpServer) for server in servers):
        raise missing_option(command, "--ca", "the certificate of a server over TCP must be verified")
    return servers


def _resolution(options: dict[str, Any], command: str) -> Resolution:
    known = bool(options["guest_dns"] or options["kubeconfig"])
    if options["resolve"] is None:
        return Resolution.HOSTED if known else Resolution.AGENT
    resolution = Resolution(options["resolve"])
    if resolution is Resolution.SERVICE and options["kubeconfig"] is None:
        why = f"--resolve {resolution.value} looks up Services in the hosted cluster's API"
        raise missing_option(command, "--kubeconfig", why)
    if resolution in _NEEDS_DNS and not known:
        why = f"--resolve {resolution.value} needs the addresses of the hosted cluster's DNS servers"
        raise missing_option(command, "--guest-dns or --kubeconfig", why)
    return resolution
