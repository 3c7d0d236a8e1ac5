"""`umbilical proxy socks5` and `umbilical proxy https`: the two proxies with native flags and defaults."""

from typing import Any, Final

import click
from click.core import ParameterSource

from umbilical.cli.engines import run_until_done
from umbilical.cli.options import (
    check_readable,
    missing_option,
    named,
    native_values,
    settings_options,
    start_logging,
    tls_files,
)
from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.fault import StartupError
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import (
    HTTPS,
    HTTPS_PORT,
    LOOPBACK,
    SOCKS5,
    SOCKS5_PORT,
    HttpsSettings,
    Resolution,
    Socks5Settings,
)
from umbilical.tunnel.setting_rows import Table, assemble
from umbilical.tunnel.settings import ListenAddress, TlsFiles

_NEEDS_DNS: Final = (Resolution.HOSTED, Resolution.HOSTED_THEN_MANAGEMENT)


@click.command()
@settings_options(SOCKS5)
def socks5(**options: Any) -> int:
    """Run a SOCKS5 proxy for the tunnel until SIGTERM."""
    settings = socks5_settings(options)
    start_logging(options["log_format"], options["log_level"])
    from umbilical.proxies.socks5 import run_socks5

    return run_until_done(run_socks5(settings))


def socks5_settings(options: dict[str, Any]) -> Socks5Settings:
    return assemble(Socks5Settings, proxy_values(SOCKS5, options, "proxy socks5", SOCKS5_PORT))


@click.command()
@settings_options(HTTPS)
@click.pass_context
def https(context: click.Context, /, **options: Any) -> int:
    """Run an HTTP proxy for the tunnel until SIGTERM."""
    for name in ("http_proxy", "https_proxy"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            check_no_secret(name, options[name])
    settings = https_settings(options)
    start_logging(options["log_format"], options["log_level"])
    from umbilical.proxies.https_process import run_https

    return run_until_done(run_https(settings))


def https_settings(options: dict[str, Any]) -> HttpsSettings:
    check_readable(options["proxy_ca"])
    values = proxy_values(HTTPS, options, "proxy https", HTTPS_PORT) | {"listen_tls": _listen_tls(options)}
    return assemble(HttpsSettings, values)


def check_no_secret(name: str, url: str) -> None:
    """Every process of the machine can read our arguments; the message does not repeat them."""
    if "@" not in url:
        return
    flag = f"--{name.replace('_', '-')}"
    raise StartupError(
        "UMB547",
        f"{flag} contains a user name or a password",
        "every process of this machine can read command lines",
        f"use --proxy-credentials-file FILE, or set the URL as UMBILICAL_PROXY_HTTPS_{name.upper()}",
    )


def _listen_tls(options: dict[str, Any]) -> TlsFiles:
    files = tls_files("listen-", options["listen_cert"], options["listen_key"], options["listen_ca"])
    if files.authority is not None and files.certificate is None:
        why = "clients send certificates only over TLS, which needs a server certificate"
        raise StartupError("UMB003", "--listen-ca was given without --listen-cert", why, "add --listen-cert FILE")
    return files


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
