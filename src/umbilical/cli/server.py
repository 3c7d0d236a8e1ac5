"""`umbilical server run`: the server with our own flags and safe defaults."""

import os
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli import engines
from umbilical.cli.options import (
    SocketPath,
    check_readable,
    missing_option,
    native_values,
    parsed,
    settings_options,
    start_logging,
    tls_files,
)
from umbilical.cluster.labels import parse_labels
from umbilical.fault import StartupError
from umbilical.konnectivity.identity import parse_identities
from umbilical.konnectivity.routing import parse_strategies
from umbilical.tunnel.setting_rows import assemble
from umbilical.tunnel.settings import SERVER, FrontendMode, ListenAddress, ServerSettings, TcpFrontend, UnixFrontend

_COMMAND: Final = "server run"
_EVERY_INTERFACE: Final = ("0.0.0.0", "::")


@click.group()
def server() -> None:
    """The server, beside the apiserver."""


@server.command()
@settings_options(SERVER)
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
    remedy = "use one or more of default, destHost, defaultRoute, cidr, with commas"
    strategies = parsed("--strategies", parse_strategies, options["strategies"], remedy)
    check_bindings(options["agent_identities"], strategies)
    tokens = token_rule(options)
    remedy = "write CN=konnectivity-client, with commas between several"
    identities = parsed("--frontend-identities", parse_identities, options["frontend_identities"], remedy)
    values = native_values(SERVER, options) | {
        "frontend": _frontend(options["listen"], options["cert"], options["key"], options["ca"]),
        "agent_tls": tls_files("agent-", options["agent_cert"], options["agent_key"], options["agent_ca"]),
        "mode": FrontendMode(options["mode"]),
        "strategies": strategies,
        "token_identity": tokens.identity if tokens is not None else "",
        "frontend_identities": identities,
    }
    return assemble(ServerSettings, values)


def check_bindings(rules: Path | None, strategies: tuple[str, ...]) -> None:
    """A rule that nothing heeds is worse than none: it is believed."""
    if rules is not None and "default" in strategies:
        why = "the strategy default gives every agent every dial, whatever it may announce"
        raise StartupError("UMB208", "--agent-identities would bind nothing", why, "--strategies destHost,defaultRoute")


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


def lease_rule(options: dict[str, Any]) -> engines.LeaseRule | None:
    address = _advertised(options)
    if not options["publish_lease"]:
        return None
    labels = parsed("--lease-labels", parse_labels, options["lease_labels"], "write key=value,…")
    return engines.LeaseRule(options["lease_namespace"], labels, address)


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
