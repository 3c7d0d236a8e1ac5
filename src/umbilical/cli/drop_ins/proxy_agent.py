"""`proxy-agent`: our agent under upstream's name and flags."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.drop_in import (
    DEFAULT_KUBERNETES_CONTENT_TYPE,
    OptionRefused,
    check_channel_size,
    check_file,
    check_pair,
    check_profiling,
    optional_path,
    random_id,
    stat_fault,
)
from umbilical.cli.drop_ins.go_values import NANOSECONDS_PER_SECOND, ValueSyntaxError, format_duration, quote
from umbilical.cli.drop_ins.pflag import BOOL, DURATION, INT, STRING, STRING_SLICE, Flag, FlagSet, Kind
from umbilical.cluster.labels import SelectorError, parse_selector
from umbilical.konnectivity.metadata import MetadataRefused, check_agent_identifiers
from umbilical.tunnel.settings import AgentSettings, Keepalive, ListenAddress, ServerAddress, TlsFiles

_SECOND: Final = NANOSECONDS_PER_SECOND
_HOUR: Final = 3600 * _SECOND
_SERVERS_LABEL: Final = "k8s-app=konnectivity-server"
COUNT_SOURCES: Final = ("", "default", "max")


def _parse_selector(text: str) -> str:
    try:
        parse_selector(text)
    except SelectorError as fault:
        raise ValueSyntaxError(str(fault)) from None
    return text


SELECTOR: Final = Kind("string", _parse_selector, STRING.show)


def agent_flags() -> tuple[Flag, ...]:
    """Return the table; the agent's id is drawn here unless the environment names it."""
    agent_id = os.environ.get("PROXY_AGENT_ID") or random_id()
    return (
        Flag("agent-cert", STRING, "", "this agent's certificate"),
        Flag("agent-key", STRING, "", "this agent's key"),
        Flag("ca-cert", STRING, "", "CA of the servers' certificates; required"),
        Flag(
            "proxy-server-host", STRING, "127.0.0.1", "name or address of the server, or of what leads to all of them"
        ),
        Flag("proxy-server-port", INT, 8091, "the server's port for agents"),
        Flag("alpn-proto", STRING_SLICE, (), "protocols to offer in the TLS handshake before h2"),
        Flag("health-server-host", STRING, "", "address of the health listener; empty is every interface"),
        Flag("health-server-port", INT, 8093, "port for health, readiness and metrics"),
        Flag("admin-server-port", INT, 8094, "port for profiles"),
        Flag("admin-bind-address", STRING, "127.0.0.1", "address of the admin listener; empty is every interface"),
        Flag("enable-profiling", BOOL, False, "serve profiles on the admin port"),
        Flag("enable-contention-profiling", BOOL, False, "accepted with --enable-profiling; without effect"),
        Flag("agent-id", STRING, agent_id, "this agent's id; PROXY_AGENT_ID sets it too"),
        Flag("agent-identifiers", STRING, "", "what this agent can reach, e.g. ipv4=1.2.3.4&host=a&default-route=true"),
        Flag("sync-interval", DURATION, _SECOND, "first wait between looks for servers not yet connected"),
        Flag("sync-interval-cap", DURATION, 10 * _SECOND, "longest such wait after failures"),
        Flag("probe-interval", DURATION, _SECOND, "wait between looks at the state of a connection"),
        Flag("keepalive-time", DURATION, _HOUR, "silence after which a server is pinged"),
        Flag("service-account-token-path", STRING, "", "file with the token that proves this agent to the server"),
        Flag("warn-on-channel-limit", BOOL, False, "accepted; buffers are bounded in bytes here"),
        Flag("sync-forever", BOOL, False, "keep looking for servers although all known ones are connected"),
        Flag("xfr-channel-size", INT, 150, "accepted; buffers are bounded in bytes here"),
        Flag("count-server-leases", BOOL, False, "count servers by their leases"),
        Flag("lease-namespace", STRING, "kube-system", "namespace of the leases"),
        Flag("lease-label-selector", SELECTOR, _SERVERS_LABEL, "which leases are servers'; empty is all"),
        Flag(
            "lease-label",
            SELECTOR,
            _SERVERS_LABEL,
            "the older name of --lease-label-selector",
            alias_of="lease-label-selector",
        ),
        Flag(
            "server-count-source", STRING, "default", "default (leases if counted, else servers' word) or max of both"
        ),
        Flag("kubeconfig", STRING, "", "how to reach the apiserver for leases; empty is in-cluster"),
        Flag("kube-api-content-type", STRING, DEFAULT_KUBERNETES_CONTENT_TYPE, "accepted; JSON is spoken"),
        Flag(
            "drain-linger",
            DURATION,
            5 * _SECOND,
            "after SIGTERM, leave once no tunnel or dial has existed for this long",
        ),
    )


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
