"""`umbilical server run`: the server with our own flags and safe defaults."""

import os
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli import engines
from umbilical.cli.drop_ins.drop_in import random_id
from umbilical.cli.options import (
    FILE,
    SocketPath,
    address,
    check_readable,
    duration,
    keepalive,
    listen_place,
    missing_option,
    server_address,
    shared_options,
    start_logging,
    tls_files,
)
from umbilical.cluster.labels import LabelError, parse_labels
from umbilical.fault import StartupError
from umbilical.konnectivity.identity import parse_identities
from umbilical.konnectivity.routing import parse_strategies
from umbilical.tunnel.settings import (
    FrontendMode,
    ListenAddress,
    ServerSettings,
    TcpFrontend,
    TlsPolicy,
    UnixFrontend,
)

_COMMAND: Final = "server run"
_EVERY_INTERFACE: Final = ("0.0.0.0", "::")


@click.group()
def server() -> None:
    """The server, beside the apiserver."""


@server.command()
@click.option(
    "--listen",
    type=listen_place,
    metavar="unix:PATH|HOST:PORT",
    required=True,
    help="Where clients connect: a Unix socket, or TCP with mTLS.",
)
@click.option("--cert", type=FILE, help="Certificate for clients over TCP.")
@click.option("--key", type=FILE, help="Its key.")
@click.option("--ca", type=FILE, help="CA of client certificates over TCP.")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in FrontendMode]),
    default="grpc",
    show_default=True,
    help="How clients ask.",
)
@click.option(
    "--agents", type=address, metavar="HOST:PORT", default=":8091", show_default=True, help="Where agents connect."
)
@click.option("--agent-cert", type=FILE, required=True, help="Certificate for agents.")
@click.option("--agent-key", type=FILE, required=True, help="Its key.")
@click.option("--agent-ca", type=FILE, help="CA of agents' certificates.")
@click.option("--token-namespace", default="", help="Namespace of the agents' service account.")
@click.option("--token-service-account", default="", help="Name of the agents' service account.")
@click.option("--token-audience", default="", help="Audience that agents' tokens must have.")
@click.option("--agent-identities", type=FILE, help="Rules: which certificate or token may announce which identifiers.")
@click.option(
    "--frontend-identities", default="", help="Who may ask for tunnels over TCP: CN=…,URI=…; not given: all but agents."
)
@click.option(
    "--strategies", default="default", show_default=True, help="In order: default, destHost, defaultRoute, cidr."
)
@click.option("--id", "server_id", envvar="PROXY_SERVER_ID", help="This server's id; random if not given.")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many servers there are.")
@click.option(
    "--health", type=address, metavar="HOST:PORT", default=":8092", show_default=True, help="Health and readiness."
)
@click.option(
    "--admin", type=address, metavar="HOST:PORT", default="127.0.0.1:8095", show_default=True, help="Metrics."
)
@click.option(
    "--dial-timeout", type=duration, default="10s", show_default=True, help="For an agent's answer; 0 is none."
)
@click.option(
    "--graceful-shutdown", type=duration, default="30s", show_default=True, help="For tunnels to end at SIGTERM."
)
@click.option(
    "--idle-tunnel-timeout", type=duration, default="0", show_default=True, help="Close idle tunnels; 0 is never."
)
@click.option("--tls-min-version", type=click.Choice(["VersionTLS12", "VersionTLS13"]), default="VersionTLS12")
@click.option("--publish-lease", is_flag=True, help="Let agents count servers by leases.")
@click.option("--lease-labels", default="k8s-app=konnectivity-server", show_default=True, help="Labels of the lease.")
@click.option(
    "--advertise",
    type=server_address,
    metavar="HOST:PORT",
    help="Publish in the lease where agents reach this very server.",
)
@shared_options
def run(**options: Any) -> int:
    """Serve tunnels until SIGTERM."""
    settings = server_settings(options)
    tokens = token_rule(options)
    if settings.agent_tls.authority is None and tokens is None:
        raise _open_door()
    check_readable(options["kubeconfig"])
    lease = lease_rule(options)
    start_logging(options["log_format"], options["log_level"])
    return engines.serve(settings, engines.KubernetesAccess(options["kubeconfig"]), tokens, lease)


def server_settings(options: dict[str, Any]) -> ServerSettings:
    strategies = _strategies(options["strategies"])
    check_bindings(options["agent_identities"], strategies)
    tokens = token_rule(options)
    return ServerSettings(
        server_id=options["server_id"] or random_id(),
        frontend=_frontend(options["listen"], options["cert"], options["key"], options["ca"]),
        agent_listen=options["agents"],
        agent_tls=tls_files("agent-", options["agent_cert"], options["agent_key"], options["agent_ca"]),
        mode=FrontendMode(options["mode"]),
        server_count=options["count"],
        strategies=strategies,
        tls_policy=TlsPolicy(options["tls_min_version"]),
        agent_keepalive=keepalive(options),
        frontend_keepalive=keepalive(options),
        dial_timeout_seconds=options["dial_timeout"],
        idle_tunnel_seconds=options["idle_tunnel_timeout"],
        graceful_shutdown_seconds=options["graceful_shutdown"],
        agent_identities=options["agent_identities"],
        token_identity=tokens.identity if tokens is not None else "",
        frontend_identities=_identities(options["frontend_identities"]),
        health_listen=options["health"],
        admin_listen=options["admin"],
        enable_profiling=options["profiling"],
    )


def check_bindings(rules: Path | None, strategies: tuple[str, ...]) -> None:
    """A rule that nothing heeds is worse than none: it is believed."""
    if rules is not None and "default" in strategies:
        why = "the strategy default gives every agent every dial, whatever it may announce"
        raise StartupError("UMB208", "--agent-identities would bind nothing", why, "--strategies destHost,defaultRoute")


def _identities(text: str) -> tuple[str, ...]:
    try:
        return parse_identities(text)
    except ValueError as fault:
        remedy = "write CN=konnectivity-client, with commas between several"
        raise StartupError("UMB001", f"--frontend-identities {text!r} cannot be used", str(fault), remedy) from None


def token_rule(options: dict[str, Any]) -> engines.TokenRule | None:
    names = ("token_namespace", "token_service_account", "token_audience")
    given = [name for name in names if options[name]]
    if not given:
        return None
    for name in names:
        if not options[name]:
            why = f"--{given[0].replace('_', '-')} is given, and token checks need all three"
            raise missing_option(_COMMAND, f"--{name.replace('_', '-')}", why)
    return engines.TokenRule(*(options[name] for name in names))


def _frontend(
    listen: SocketPath | ListenAddress, certificate: Path | None, key: Path | None, authority: Path | None
) -> UnixFrontend | TcpFrontend:
    if isinstance(listen, SocketPath):
        if certificate or key or authority:
            why = f"clients of {listen.path} are let in by the modes of the file, without TLS"
            raise StartupError("UMB004", "--cert, --key and --ca do not go with a Unix socket", why, "leave them out")
        _check_directory(listen.path)
        return UnixFrontend(listen.path)
    for name, value in (("--cert", certificate), ("--key", key), ("--ca", authority)):
        if value is None:
            raise missing_option(_COMMAND, name, "clients over TCP are let in by mutual TLS only")
    return TcpFrontend(listen, tls_files("", certificate, key, authority))


def _check_directory(path: Path) -> None:
    if not os.path.isdir(path.parent):
        remedy = f"mkdir -p {path.parent}"
        raise StartupError("UMB002", f"no directory for the Unix socket {path}", f"{path.parent} is missing", remedy)


def _strategies(text: str) -> tuple[str, ...]:
    try:
        return parse_strategies(text)
    except ValueError as fault:
        remedy = "use one or more of default, destHost, defaultRoute, cidr, with commas"
        raise StartupError("UMB001", f"--strategies {text!r} cannot be used", str(fault), remedy) from None


def lease_rule(options: dict[str, Any]) -> engines.LeaseRule | None:
    address = _advertised(options)
    if not options["publish_lease"]:
        return None
    try:
        return engines.LeaseRule(options["lease_namespace"], parse_labels(options["lease_labels"]), address)
    except LabelError as fault:
        text = options["lease_labels"]
        raise StartupError(
            "UMB001", f"--lease-labels {text!r} cannot be used", str(fault), "write key=value,…"
        ) from None


def _advertised(options: dict[str, Any]) -> tuple[str, int] | None:
    place = options["advertise"]
    if place is None:
        return None
    if not options["publish_lease"]:
        why = "an address is published in the lease, and without --publish-lease there is none"
        raise StartupError("UMB205", "--advertise without --publish-lease", why, "add --publish-lease")
    if place.host in _EVERY_INTERFACE:
        why = f"{place.host} means every interface of this machine; from another one it leads nowhere"
        remedy = "name the address that agents dial, and that the certificate is for"
        raise StartupError("UMB206", f"--advertise cannot publish {place.host}", why, remedy)
    return place.host, place.port


def _open_door() -> StartupError:
    return StartupError(
        "UMB201",
        "any agent would be accepted",
        "neither --agent-ca nor token checks are set: whoever reaches the port gets clients' traffic (CVE-2026-16242)",
        "add --agent-ca FILE, or --token-namespace, --token-service-account and --token-audience",
    )
