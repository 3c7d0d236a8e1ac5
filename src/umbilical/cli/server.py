"""`umbilical server run` and `install`: the server with our own flags and safe defaults; its units and static pod."""

import os
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli import engines
from umbilical.cli import install as units
from umbilical.cli.options import (
    SocketPath,
    admin_values,
    check_readable,
    missing_option,
    native_values,
    parsed,
    settings_options,
    start_logging,
    tls_files,
)
from umbilical.cluster.labels import parse_labels
from umbilical.cluster.review_cache import MAX_SECONDS
from umbilical.fault import StartupError
from umbilical.konnectivity.identity import parse_identities
from umbilical.konnectivity.routing import parse_strategies
from umbilical.tunnel.resource_limits import parse_workers
from umbilical.tunnel.setting_rows import assemble
from umbilical.tunnel.settings import SERVER, FrontendMode, ServerSettings, TcpFrontend, UnixFrontend

_COMMAND: Final = "server run"
_EVERY_INTERFACE: Final = ("0.0.0.0", "::")


@click.group()
def server() -> None:
    """Run the Konnectivity server next to kube-apiserver."""


STOP_SECONDS: Final = 30.0
"""Beyond the time for tunnels, until systemd kills the server: workers have twice 10 s."""


@server.command()
@settings_options(SERVER)
def run(**options: Any) -> int:
    """Serve tunnels until SIGTERM."""
    settings, tokens, lease = checked(options)
    check_readable(options["kubeconfig"])
    start_logging(options["log_format"], options["log_level"])
    kubernetes = engines.KubernetesAccess(options["kubeconfig"], options["kubernetes_qps"])
    logs = ("native", options["log_format"], options["log_level"])
    return engines.serve(settings, kubernetes, tokens, lease, logs)


@server.command()
@units.unit_options
@settings_options(SERVER)
@click.pass_context
def install(context: click.Context, /, **options: Any) -> None:
    """Render systemd units or a static pod for the server.

    Takes the options of `server run`; nothing on this machine is changed. Files are given by their paths on the
    server's machine, and need not exist here.
    """
    settings, _, _ = checked(options, may_come_later=True)
    frontend = settings.frontend
    ports = [settings.agent_listen, settings.health_listen, settings.admin_listen]
    unit = units.service_unit(
        context,
        SERVER,
        "server",
        stop_seconds=settings.graceful_shutdown_seconds + STOP_SECONDS,
        socket_path=str(frontend.path.absolute()) if isinstance(frontend, UnixFrontend) else "",
        ports=ports + ([frontend.address] if isinstance(frontend, TcpFrontend) else []),
    )
    units.write(unit, options, settings.health_listen, tier="control-plane")


def checked(
    options: dict[str, Any], *, may_come_later: bool = False
) -> tuple[ServerSettings, engines.TokenRule | None, engines.LeaseRule | None]:
    """Raises StartupError: two options conflict, any agent would be accepted, or a file is not readable; files that
    may come later are not looked at."""
    settings = server_settings(options, may_come_later=may_come_later)
    tokens = token_rule(options)
    if settings.agent_tls.authority is None and tokens is None:
        raise _any_agent_accepted()
    return settings, tokens, lease_rule(options)


def server_settings(options: dict[str, Any], *, may_come_later: bool = False) -> ServerSettings:
    remedy = "use one or more of default, destHost, defaultRoute, cidr, separated by commas"
    strategies = parsed("--strategies", parse_strategies, options["strategies"], remedy)
    check_bindings(options["agent_identities"], strategies)
    tokens = token_rule(options)
    remedy = "write e.g. CN=konnectivity-client; separate several by commas"
    identities = parsed("--frontend-identities", parse_identities, options["frontend_identities"], remedy)
    if options["audit_file"] is not None and not may_come_later:
        _check_directory(options["audit_file"], "the audit")
    values = native_values(SERVER, options) | {
        "frontend": _frontend(options, may_come_later=may_come_later),
        "agent_tls": tls_files(
            "agent-",
            options["agent_cert"],
            options["agent_key"],
            options["agent_ca"],
            revoked=options["agent_crl"],
            may_come_later=may_come_later,
        ),
        **admin_values(options, may_come_later=may_come_later),
        "expected_agents": options["expected_agents"] or 0,
        "mode": FrontendMode(options["mode"]),
        "strategies": strategies,
        "token_identity": tokens.identity if tokens is not None else "",
        "frontend_identities": identities,
        "workers": parsed("--workers", parse_workers, options["workers"], "write a number such as 4, or auto"),
    }
    return assemble(ServerSettings, values)


def check_bindings(rules: Path | None, strategies: tuple[str, ...]) -> None:
    """Refuse rules that would have no effect: the operator would rely on them."""
    if rules is not None and "default" in strategies:
        what = "--agent-identities would have no effect"
        why = "the strategy default sends any dial to any agent, whatever the agent announces"
        raise StartupError("UMB208", what, why, "use --strategies destHost,defaultRoute")


def token_rule(options: dict[str, Any]) -> engines.TokenRule | None:
    _check_cache(options.get("token_cache", 0.0))
    names = ("token_namespace", "token_service_account", "token_audience")
    given = [name for name in names if options[name]]
    if not given:
        return None
    for name in names:
        if not options[name]:
            why = f"--{given[0].replace('_', '-')} is given, and token checks need all three options"
            raise missing_option(_COMMAND, f"--{name.replace('_', '-')}", why)
    namespace, service_account, audience = (options[name] for name in names)
    return engines.TokenRule(namespace, service_account, audience, options["token_cache"])


def _check_cache(seconds: float) -> None:
    if seconds > MAX_SECONDS:
        why = "a revoked token would be accepted for that time"
        raise StartupError("UMB001", "--token-cache is longer than 1m", why, "use --token-cache 1m, or less")


def _frontend(options: dict[str, Any], *, may_come_later: bool) -> UnixFrontend | TcpFrontend:
    listen, certificate, key, authority = (options[name] for name in ("listen", "cert", "key", "ca"))
    if isinstance(listen, SocketPath):
        if certificate or key or authority or options["crl"]:
            what = "--cert, --key, --ca and --crl cannot be combined with a Unix socket"
            why = f"the file mode of {listen.path} decides which clients may connect; TLS is not used"
            raise StartupError("UMB004", what, why, "remove these options")
        if not may_come_later:
            _check_directory(listen.path, "the Unix socket")
        return UnixFrontend(listen.path)
    for name, value in (("--cert", certificate), ("--key", key), ("--ca", authority)):
        if value is None:
            raise missing_option(_COMMAND, name, "clients over TCP must use mutual TLS")
    files = tls_files("", certificate, key, authority, revoked=options["crl"], may_come_later=may_come_later)
    return TcpFrontend(listen, files)


def _check_directory(path: Path, what: str) -> None:
    if not os.path.isdir(path.parent):
        why = f"the directory {path.parent} does not exist"
        raise StartupError("UMB002", f"cannot create {what} {path}", why, f"mkdir -p {path.parent}")


def lease_rule(options: dict[str, Any]) -> engines.LeaseRule | None:
    address = _advertised(options)
    if not options["publish_lease"]:
        return None
    from umbilical.cluster.leases import parse_owner

    labels = parsed("--lease-labels", parse_labels, options["lease_labels"], "write key=value,…")
    text = options["lease_owner"]
    owner = parsed("--lease-owner", parse_owner, text, "write NAME/UID of the pod") if text else None
    return engines.LeaseRule(options["lease_namespace"], labels, address, owner)


def _advertised(options: dict[str, Any]) -> tuple[str, int] | None:
    place = options["advertise"]
    if place is None:
        return None
    if not options["publish_lease"]:
        why = "the address is published in the lease, and without --publish-lease there is no lease"
        raise StartupError("UMB205", "--advertise without --publish-lease", why, "add --publish-lease")
    if place.host in _EVERY_INTERFACE:
        why = f"{place.host} means every interface of this machine; agents cannot dial it"
        remedy = "use the address that agents dial and that the certificate contains"
        raise StartupError("UMB206", f"--advertise cannot publish {place.host}", why, remedy)
    return place.host, place.port


def _any_agent_accepted() -> StartupError:
    return StartupError(
        "UMB201",
        "any agent would be accepted",
        "neither --agent-ca nor token checks are set: any agent would get clients' traffic (CVE-2026-16242)",
        "add --agent-ca FILE, or --token-namespace, --token-service-account and --token-audience",
    )
