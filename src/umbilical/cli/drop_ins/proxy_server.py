"""`proxy-server`: our server under upstream's name and flags."""

import logging
import sys
from collections.abc import Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.server_flags import TOKEN_FLAGS, check_server_flags, server_flags, uses_tokens
from umbilical.cli.option_checks import OptionRefused, optional_path
from umbilical.cluster.labels import LabelError, parse_labels
from umbilical.konnectivity.routing import parse_strategies
from umbilical.tunnel.settings import (
    FrontendMode,
    Keepalive,
    ListenAddress,
    ServerSettings,
    TcpFrontend,
    TlsFiles,
    TlsPolicy,
    UnixFrontend,
)

GRPC_DEFAULT_PING_SECONDS: Final = 7200.0
"""What grpc-go's server takes a keepalive time of 0 for."""
GRPC_SHORTEST_PING_SECONDS: Final = 1.0
_OLD_TLS: Final = ("VersionTLS10", "VersionTLS11")
_NO_CERTIFICATE: Final = "failed to load X509 key pair  and : open : no such file or directory"
_log: Final = logging.getLogger("umbilical.cli.drop_ins.proxy_server")


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    return drop_in.run(PROXY_SERVER, arguments)


def start(flags: FlagSet) -> int:
    settings = server_settings(flags)
    labels = _lease_labels(flags)
    warn(flags)
    kubernetes = engines.KubernetesAccess(
        optional_path(flags.text("kubeconfig")), flags.fraction("kubeconfig-qps"), flags.number("kubeconfig-burst")
    )
    tokens = _token_rule(flags)
    publishing = flags.switch("enable-lease-controller")
    lease = engines.LeaseRule(flags.text("lease-namespace"), labels) if publishing else None
    return engines.serve(settings, kubernetes, tokens, lease)


def server_settings(flags: FlagSet) -> ServerSettings:
    """Turn checked flags into settings. Raises `OptionRefused` where upstream fails only once it has started."""
    if not flags.text("uds-name") and not flags.text("server-cert"):
        raise OptionRefused(f"failed to run the frontend server: {_NO_CERTIFICATE}")
    if not flags.text("cluster-cert"):
        raise OptionRefused(f"failed to run the agent server: {_NO_CERTIFICATE}")
    tokens = _token_rule(flags)
    return ServerSettings(
        server_id=flags.text("server-id"),
        frontend=_frontend(flags),
        agent_listen=_listen(flags, "agent"),
        agent_tls=_tls_files(flags, "cluster"),
        mode=FrontendMode(flags.text("mode")),
        server_count=flags.number("server-count"),
        strategies=parse_strategies(flags.text("proxy-strategies")),
        tls_policy=TlsPolicy(flags.text("tls-min-version") or "VersionTLS12", flags.items("cipher-suites")),
        agent_keepalive=_keepalive(flags.seconds("keepalive-time")),
        frontend_keepalive=_keepalive(flags.seconds("frontend-keepalive-time")),
        dial_timeout_seconds=flags.seconds("backend-dial-timeout"),
        graceful_shutdown_seconds=flags.seconds("graceful-shutdown-timeout"),
        agent_identities=optional_path(flags.text("agent-identities")),
        token_identity=tokens.identity if tokens is not None else "",
        frontend_identities=flags.items("frontend-identities"),
        health_listen=_listen(flags, "health"),
        admin_listen=_listen(flags, "admin"),
        enable_profiling=flags.switch("enable-profiling"),
    )


def _token_rule(flags: FlagSet) -> engines.TokenRule | None:
    return engines.TokenRule(*(flags.text(name) for name in TOKEN_FLAGS)) if uses_tokens(flags) else None


def _frontend(flags: FlagSet) -> UnixFrontend | TcpFrontend:
    path = optional_path(flags.text("uds-name"))
    if path is not None:
        return UnixFrontend(path, replace_existing=flags.switch("delete-existing-uds-file"))
    return TcpFrontend(_listen(flags, "server"), _tls_files(flags, "server"))


def _listen(flags: FlagSet, name: str) -> ListenAddress:
    return ListenAddress(flags.text(f"{name}-bind-address"), flags.number(f"{name}-port"))


def _tls_files(flags: FlagSet, owner: str) -> TlsFiles:
    return TlsFiles(
        certificate=optional_path(flags.text(f"{owner}-cert")),
        key=optional_path(flags.text(f"{owner}-key")),
        authority=optional_path(flags.text(f"{owner}-ca-cert")),
    )


def _keepalive(seconds: float) -> Keepalive:
    if seconds <= 0:
        return Keepalive(GRPC_DEFAULT_PING_SECONDS)
    return Keepalive(max(seconds, GRPC_SHORTEST_PING_SECONDS))


def _lease_labels(flags: FlagSet) -> dict[str, str]:
    """Upstream reads the labels even when no lease is published, and fails then without a prefix; so do we."""
    try:
        return parse_labels(flags.text("lease-label"))
    except LabelError as fault:
        raise OptionRefused(str(fault)) from None


def warn(flags: FlagSet) -> None:
    if flags.text("tls-min-version") in _OLD_TLS:
        version = flags.text("tls-min-version")
        _log.warning("--tls-min-version=%s is below TLS 1.2 and is considered insecure (RFC 8996)", version)
    if not flags.text("cluster-ca-cert") and not uses_tokens(flags):
        _log.warning("ANY AGENT IS ACCEPTED: neither --cluster-ca-cert nor token authentication is set.")
        _log.warning("Whoever reaches port %d can receive what clients send (CVE-2026-16242).", _agent_port(flags))
        _log.warning("Set --cluster-ca-cert, or --agent-namespace, --agent-service-account and the audience.")


def _agent_port(flags: FlagSet) -> int:
    return flags.number("agent-port")


PROXY_SERVER: Final = drop_in.DropIn(
    program="proxy-server",
    command="proxy",
    about="A Konnectivity server: takes requests from the apiserver and carries them through agents.",
    refusal_prefix="failed to validate server options with ",
    flags=server_flags,
    check=check_server_flags,
    start=start,
)
