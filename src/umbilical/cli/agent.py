"""`umbilical agent run`: the agent with our own flags and safe defaults."""

from typing import Any, Final

import click

from umbilical.cli import engines
from umbilical.cli.drop_ins.drop_in import random_id
from umbilical.cli.options import (
    FILE,
    address,
    check_readable,
    duration,
    keepalive,
    missing_option,
    server_address,
    shared_options,
    start_logging,
    tls_files,
)
from umbilical.cluster.labels import SelectorError, parse_selector
from umbilical.fault import StartupError
from umbilical.konnectivity.metadata import MetadataRefused, check_agent_identifiers
from umbilical.tunnel.settings import AgentSettings, Limits, ServerAddress

_DIALS: Final = Limits().concurrent_dials


@click.group()
def agent() -> None:
    """The agent, inside the cluster."""


@agent.command()
@click.option(
    "--server",
    type=server_address,
    metavar="HOST:PORT",
    multiple=True,
    help="A server, or what leads to several; repeatable. A name stands for all its addresses.",
)
@click.option("--ca", type=FILE, required=True, help="CA of the server's certificate.")
@click.option("--cert", type=FILE, help="This agent's certificate.")
@click.option("--key", type=FILE, help="Its key.")
@click.option("--token-file", type=FILE, help="Service account token to show to the server; read at every connect.")
@click.option("--id", "agent_id", envvar="PROXY_AGENT_ID", help="This agent's id; random if not given.")
@click.option("--identifiers", default="", help="What it can reach: ipv4=1.2.3.4&host=a&default-route=true.")
@click.option("--alpn", multiple=True, help="Offer this protocol in the TLS handshake before h2.")
@click.option(
    "--health",
    type=address,
    metavar="HOST:PORT",
    default=":8093",
    show_default=True,
    help="Health, readiness and metrics.",
)
@click.option(
    "--admin", type=address, metavar="HOST:PORT", default="127.0.0.1:8094", show_default=True, help="Profiles."
)
@click.option(
    "--sync-interval", type=duration, default="1s", show_default=True, help="First wait between looks for servers."
)
@click.option(
    "--sync-interval-cap", type=duration, default="10s", show_default=True, help="Longest wait after failures."
)
@click.option("--probe-interval", type=duration, default="1s", show_default=True, help="Between looks at a connection.")
@click.option("--sync-forever", is_flag=True, help="Keep looking although all known servers are connected.")
@click.option("--dial-timeout", type=duration, default="5s", show_default=True, help="For a name lookup and a connect.")
@click.option("--max-dials", type=click.IntRange(min=1), default=_DIALS, show_default=True, help="At the same time.")
@click.option(
    "--drain-linger",
    type=duration,
    default="5s",
    show_default=True,
    help="After SIGTERM, leave once nothing has happened this long.",
)
@click.option("--count-leases", is_flag=True, help="Count servers by their leases, and connect where these say.")
@click.option(
    "--count-source",
    type=click.Choice(["default", "max"]),
    default="default",
    show_default=True,
    help="Leases if they are counted, else servers' word; or the larger of both.",
)
@click.option("--lease-selector", default="k8s-app=konnectivity-server", show_default=True, help="Which are servers'.")
@shared_options
def run(**options: Any) -> int:
    """Connect to every server and open connections on their word, until SIGTERM."""
    settings = agent_settings(options)
    check_readable(options["kubeconfig"])
    leases = _lease_selection(options)
    start_logging(options["log_format"], options["log_level"])
    return engines.attend(settings, engines.KubernetesAccess(options["kubeconfig"]), leases)


def agent_settings(options: dict[str, Any]) -> AgentSettings:
    check_readable(options["token_file"])
    _check_identifiers(options["identifiers"])
    _check_intervals(options["sync_interval"], options["sync_interval_cap"])
    return AgentSettings(
        agent_id=options["agent_id"] or random_id(),
        servers=_servers(options),
        tls=tls_files("", options["cert"], options["key"], options["ca"]),
        agent_identifiers=options["identifiers"],
        alpn_protocols=tuple(options["alpn"]),
        sync_interval_seconds=options["sync_interval"],
        sync_interval_cap_seconds=options["sync_interval_cap"],
        probe_interval_seconds=options["probe_interval"],
        sync_forever=options["sync_forever"],
        server_count_source=options["count_source"],
        keepalive=keepalive(options),
        token_path=options["token_file"],
        dial_timeout_seconds=options["dial_timeout"],
        drain_linger_seconds=options["drain_linger"],
        health_listen=options["health"],
        admin_listen=options["admin"],
        enable_profiling=options["profiling"],
        limits=Limits(concurrent_dials=options["max_dials"]),
    )


def _servers(options: dict[str, Any]) -> tuple[ServerAddress, ...]:
    servers = tuple(dict.fromkeys(options["server"]))
    if not servers and not options["count_leases"]:
        why = "without it only leases can say where servers are, and --count-leases is not given"
        raise missing_option("agent run", "--server", why)
    return servers


def _check_identifiers(text: str) -> None:
    try:
        check_agent_identifiers(text)
    except MetadataRefused as fault:
        remedy = "use ipv4, ipv6, host, cidr and default-route, e.g. host=node1&default-route=true"
        raise StartupError("UMB001", f"--identifiers {text!r} cannot be used", str(fault), remedy) from None


def _check_intervals(first: float, cap: float) -> None:
    if first > cap:
        why = f"waits grow from --sync-interval ({first:g} s) to --sync-interval-cap ({cap:g} s)"
        raise StartupError("UMB001", "--sync-interval is past its cap", why, "raise --sync-interval-cap")


def _lease_selection(options: dict[str, Any]) -> engines.LeaseSelection | None:
    if not options["count_leases"]:
        return None
    selector = options["lease_selector"]
    try:
        parse_selector(selector)
    except SelectorError as fault:
        remedy = "write it as for kubectl get -l"
        raise StartupError("UMB001", f"--lease-selector {selector!r} cannot be used", str(fault), remedy) from None
    return engines.LeaseSelection(options["lease_namespace"], selector)
