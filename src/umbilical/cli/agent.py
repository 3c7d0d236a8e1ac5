"""`umbilical agent run` and `install`: the agent with our own flags and safe defaults; its unit and static pod."""

from functools import partial
from typing import Any, Final

import click

from umbilical.cli import engines
from umbilical.cli import install as units
from umbilical.cli.options import (
    admin_values,
    check_readable,
    missing_option,
    native_values,
    parsed,
    settings_options,
    start_logging,
    tls_files,
)
from umbilical.cluster.labels import parse_selector
from umbilical.fault import StartupError
from umbilical.konnectivity.destinations import LOCAL, check_rule
from umbilical.konnectivity.metadata import check_agent_identifiers
from umbilical.tunnel.setting_rows import assemble
from umbilical.tunnel.settings import AGENT, AgentSettings, ServerAddress


@click.group()
def agent() -> None:
    """Run the Konnectivity agent inside the cluster."""


STOP_SECONDS: Final = 90.0
"""Until systemd kills an agent that drains, which has no limit of its own: systemd's default for services."""


@agent.command()
@settings_options(AGENT)
def run(**options: Any) -> int:
    """Connect to servers and dial endpoints until SIGTERM."""
    settings = agent_settings(options)
    check_readable(options["kubeconfig"])
    leases = _lease_selection(options)
    start_logging(options["log_format"], options["log_level"])
    return engines.attend(settings, engines.KubernetesAccess(options["kubeconfig"]), leases)


@agent.command()
@units.unit_options
@settings_options(AGENT)
@click.pass_context
def install(context: click.Context, /, **options: Any) -> None:
    """Render a systemd unit or a static pod for the agent.

    Takes the options of `agent run`; nothing on this machine is changed. Files are given by their paths on the
    agent's machine, and need not exist here.
    """
    settings = agent_settings(options, may_come_later=True)
    _lease_selection(options)
    ports = [settings.health_listen, settings.admin_listen]
    unit = units.service_unit(context, AGENT, "agent", stop_seconds=STOP_SECONDS, ports=ports)
    units.write(unit, options, settings.health_listen, tier="node")


def agent_settings(options: dict[str, Any], *, may_come_later: bool = False) -> AgentSettings:
    if not may_come_later:
        check_readable(options["token_file"])
        check_readable(options["destinations_file"])
    remedy = "use ipv4, ipv6, host, cidr and default-route, e.g. host=node1&default-route=true"
    parsed("--identifiers", check_agent_identifiers, options["identifiers"], remedy)
    for option in ("allow_destination", "deny_destination"):
        for rule in options[option]:
            read = partial(check_rule, is_deny=option == "deny_destination")
            parsed(f"--{option.replace('_', '-')}", read, rule, "write it as 10.0.0.0/8:443, db.example.com or *:22")
    _check_intervals(options["sync_interval"], options["sync_interval_cap"])
    values = native_values(AGENT, options) | {
        "servers": _servers(options),
        **admin_values(options, may_come_later=may_come_later),
        "tls": tls_files("", options["cert"], options["key"], options["ca"], may_come_later=may_come_later),
        "destinations.denied": (*options["deny_destination"], LOCAL),
    }
    return assemble(AgentSettings, values)


def _servers(options: dict[str, Any]) -> tuple[ServerAddress, ...]:
    servers = tuple(dict.fromkeys(options["server"]))
    if not servers and not options["count_leases"]:
        why = "no server is configured, and without --count-leases none is found by leases"
        raise missing_option("agent run", "--server", why)
    return servers


def _check_intervals(first: float, cap: float) -> None:
    if first > cap:
        why = f"intervals grow from --sync-interval ({first:g} s) to --sync-interval-cap ({cap:g} s)"
        raise StartupError("UMB001", "--sync-interval is larger than its cap", why, "raise --sync-interval-cap")


def _lease_selection(options: dict[str, Any]) -> engines.LeaseSelection | None:
    if not options["count_leases"]:
        return None
    parsed("--lease-selector", parse_selector, options["lease_selector"], "write it as for kubectl get -l")
    return engines.LeaseSelection(options["lease_namespace"], options["lease_selector"])
