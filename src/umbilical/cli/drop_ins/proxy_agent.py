"""`proxy-agent`: our agent with upstream's name, flags and checks of flags."""

import sys
from collections.abc import Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.drop_in import (
    OptionRefused,
    check_channel_size,
    check_file,
    check_pair,
    check_profiling,
    stat_fault,
)
from umbilical.cli.drop_ins.go_values import format_duration, quote
from umbilical.cli.drop_ins.pflag import FlagSet, FlagSpec
from umbilical.konnectivity.metadata import MetadataRefused, check_agent_identifiers
from umbilical.tunnel.setting_rows import assemble
from umbilical.tunnel.settings import AGENT, AgentSettings

COUNT_SOURCES: Final = ("", "default", "max")
GRPC_SHORTEST_PING_SECONDS: Final = 10.0
"""grpc-go's minimum for clients."""
_NO_AUTHORITY: Final = "failed to run proxy connection with failed to load CA cert: open : no such file or directory"


def agent_flags() -> tuple[FlagSpec, ...]:
    return drop_in.flags_of(AGENT)


def check_agent_flags(flags: FlagSet) -> None:
    """Raise `OptionRefused` for the first rule broken, in upstream's order."""
    check_pair("agent", flags.text("agent-cert"), flags.text("agent-key"))
    check_file("agent CA cert", flags.text("ca-cert"))
    _check_ports(flags)
    check_channel_size(flags)
    check_profiling(flags)
    _check_intervals(flags)
    check_file("service account token path", flags.text("service-account-token-path"))
    _check_identifiers(flags)
    kubeconfig = flags.text("kubeconfig")
    if kubeconfig and (fault := stat_fault(kubeconfig)):
        raise OptionRefused(f"error checking KubeconfigPath {quote(kubeconfig)}, got {fault}")
    source = flags.text("server-count-source")
    if source not in COUNT_SOURCES:
        raise OptionRefused(f"--server-count-source must be one of '', 'default', 'max', got {source}")


def _check_ports(flags: FlagSet) -> None:
    for name in ("proxy-server-port", "health-server-port", "admin-server-port"):
        port = flags.number(name)
        if port <= 0:
            raise OptionRefused(f"{name.replace('-', ' ')} {port} must be greater than 0")


def _check_intervals(flags: FlagSet) -> None:
    first, cap = flags.number("sync-interval"), flags.number("sync-interval-cap")
    if first > cap:
        shown = f"{format_duration(first)} must be less than sync interval cap {format_duration(cap)}"
        raise OptionRefused(f"sync interval {shown}")
    if flags.number("drain-linger") < 0:
        raise OptionRefused(f"drain-linger must be >= 0, got {format_duration(flags.number('drain-linger'))}")


def _check_identifiers(flags: FlagSet) -> None:
    try:
        check_agent_identifiers(flags.text("agent-identifiers"))
    except MetadataRefused as fault:
        raise OptionRefused(f"agent address is invalid: {fault}") from None


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    return drop_in.run(PROXY_AGENT, arguments)


def start(flags: FlagSet) -> int:
    settings = agent_settings(flags)
    values = drop_in.values_of(AGENT, flags)
    kubernetes = assemble(engines.KubernetesAccess, values, "kubernetes.")
    return engines.attend(
        settings, kubernetes, assemble(engines.LeaseSelection, values, "leases.") if values["leases"] else None
    )


def agent_settings(flags: FlagSet) -> AgentSettings:
    """Turn checked flags into settings. Raises `OptionRefused` where upstream fails only once it has started."""
    values = drop_in.values_of(AGENT, flags)
    if values["tls.authority"] is None:
        raise OptionRefused(_NO_AUTHORITY)
    ping_after = "keepalive.interval_seconds"
    values[ping_after] = max(values[ping_after], GRPC_SHORTEST_PING_SECONDS)
    values["server_count_source"] = values["server_count_source"] or "default"
    return assemble(AgentSettings, values)


PROXY_AGENT: Final = drop_in.DropIn(
    program="proxy-agent",
    command="agent",
    about="A Konnectivity agent: connects to the server and dials endpoints inside the cluster on its behalf.",
    refusal_prefix="failed to validate agent options with ",
    flags=agent_flags,
    check=check_agent_flags,
    start=start,
)
