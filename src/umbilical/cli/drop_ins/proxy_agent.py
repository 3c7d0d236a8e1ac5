"""`proxy-agent`: our agent under upstream's name and flags."""

import sys
from collections.abc import Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.agent_flags import agent_flags, check_agent_flags
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.option_checks import OptionRefused, optional_path
from umbilical.tunnel.settings import AgentSettings, Keepalive, ListenAddress, ServerAddress, TlsFiles

GRPC_SHORTEST_PING_SECONDS: Final = 10.0
"""grpc-go's floor for clients."""
_NO_AUTHORITY: Final = "failed to run proxy connection with failed to load CA cert: open : no such file or directory"


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    return drop_in.run(PROXY_AGENT, arguments)


def start(flags: FlagSet) -> int:
    settings = agent_settings(flags)
    kubernetes = engines.KubernetesAccess(optional_path(flags.text("kubeconfig")))
    if not flags.switch("count-server-leases"):
        return engines.attend(settings, kubernetes)
    selection = engines.LeaseSelection(flags.text("lease-namespace"), flags.text("lease-label-selector"))
    return engines.attend(settings, kubernetes, selection)


def agent_settings(flags: FlagSet) -> AgentSettings:
    """Turn checked flags into settings. Raises `OptionRefused` where upstream fails only once it has started."""
    if not flags.text("ca-cert"):
        raise OptionRefused(_NO_AUTHORITY)
    return AgentSettings(
        agent_id=flags.text("agent-id"),
        servers=(ServerAddress(flags.text("proxy-server-host"), flags.number("proxy-server-port")),),
        tls=TlsFiles(
            certificate=optional_path(flags.text("agent-cert")),
            key=optional_path(flags.text("agent-key")),
            authority=optional_path(flags.text("ca-cert")),
        ),
        agent_identifiers=flags.text("agent-identifiers"),
        alpn_protocols=flags.items("alpn-proto"),
        sync_interval_seconds=flags.seconds("sync-interval"),
        sync_interval_cap_seconds=flags.seconds("sync-interval-cap"),
        probe_interval_seconds=flags.seconds("probe-interval"),
        sync_forever=flags.switch("sync-forever"),
        server_count_source=flags.text("server-count-source") or "default",
        keepalive=Keepalive(max(flags.seconds("keepalive-time"), GRPC_SHORTEST_PING_SECONDS)),
        token_path=optional_path(flags.text("service-account-token-path")),
        drain_linger_seconds=flags.seconds("drain-linger"),
        health_listen=ListenAddress(flags.text("health-server-host"), flags.number("health-server-port")),
        admin_listen=ListenAddress(flags.text("admin-bind-address"), flags.number("admin-server-port")),
        enable_profiling=flags.switch("enable-profiling"),
    )


PROXY_AGENT: Final = drop_in.DropIn(
    program="proxy-agent",
    command="agent",
    about="A Konnectivity agent: connects to the server and opens, on its word, connections inside the cluster.",
    refusal_prefix="failed to validate agent options with ",
    flags=agent_flags,
    check=check_agent_flags,
    start=start,
)
