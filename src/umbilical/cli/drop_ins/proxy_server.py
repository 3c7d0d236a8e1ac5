"""`proxy-server`: our server with upstream's name, flags and checks of flags."""

import logging
import sys
from collections.abc import Sequence
from typing import Any, Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in, klog
from umbilical.cli.drop_ins.drop_in import (
    OptionRefused,
    check_channel_size,
    check_file,
    check_pair,
    check_profiling,
    optional_path,
    stat_fault,
)
from umbilical.cli.drop_ins.go_values import format_duration, quote
from umbilical.cli.drop_ins.pflag import FlagSet, FlagSpec
from umbilical.cluster.labels import LabelError, parse_labels
from umbilical.konnectivity.identity import check_identity
from umbilical.konnectivity.routing import parse_strategies
from umbilical.tunnel.resource_limits import parse_workers
from umbilical.tunnel.setting_rows import assemble
from umbilical.tunnel.settings import (
    SERVER,
    FrontendMode,
    ListenAddress,
    ServerSettings,
    TcpFrontend,
    TlsFiles,
    UnixFrontend,
)

_LAST_REGISTERED_PORT: Final = 49151
_LAST_RESERVED_PORT: Final = 1023
TLS_VERSIONS: Final = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
_EXCHANGES: Final = (
    "AES_128_CBC_SHA",
    "AES_256_CBC_SHA",
    "AES_128_GCM_SHA256",
    "AES_256_GCM_SHA384",
    "CHACHA20_POLY1305_SHA256",
)
CIPHER_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
    | {f"TLS_ECDHE_{signer}_WITH_{exchange}" for signer in ("ECDSA", "RSA") for exchange in _EXCHANGES}
)
"""The suites that Go 1.26 considers secure."""
TOKEN_FLAGS: Final = ("agent-namespace", "agent-service-account", "authentication-audience")


def server_flags() -> tuple[FlagSpec, ...]:
    return drop_in.flags_of(SERVER)


def check_server_flags(flags: FlagSet) -> None:
    """Raise `OptionRefused` for the first rule broken, in upstream's order."""
    _check_files(flags)
    _check_mode(flags)
    _check_ports(flags)
    check_profiling(flags)
    _check_tokens(flags)
    kubeconfig = flags.text("kubeconfig")
    if kubeconfig and (fault := stat_fault(kubeconfig)):
        raise OptionRefused(f"checking KubeconfigPath {quote(kubeconfig)}, got {fault}")
    _check_strategies(flags)
    check_channel_size(flags)
    _check_tls(flags)
    _check_identities(flags)
    _check_workers(flags)
    _check_leases_and_timeouts(flags)


def uses_tokens(flags: FlagSet) -> bool:
    return any(flags.text(name) for name in TOKEN_FLAGS)


def _check_files(flags: FlagSet) -> None:
    check_pair("server", flags.text("server-cert"), flags.text("server-key"))
    check_file("server CA cert", flags.text("server-ca-cert"))
    check_pair("cluster", flags.text("cluster-cert"), flags.text("cluster-key"))
    check_file("cluster CA cert", flags.text("cluster-ca-cert"))


def _check_mode(flags: FlagSet) -> None:
    if flags.text("mode") not in ("grpc", "http-connect"):
        raise OptionRefused(f"mode must be set to either 'grpc' or 'http-connect' not {quote(flags.text('mode'))}")
    if not flags.text("uds-name"):
        if not flags.text("server-ca-cert"):
            raise OptionRefused("server ca cert must be set when in TCP mode (uds-name is empty)")
        return
    if flags.number("server-port") != 0:
        raise OptionRefused(f"server port should be set to 0 not {flags.number('server-port')} for UDS")
    for name in ("server-key", "server-cert", "server-ca-cert"):
        if flags.text(name):
            raise OptionRefused(f"{name.replace('-', ' ')} should not be set for UDS")


def _check_ports(flags: FlagSet) -> None:
    ports = {name: flags.number(f"{name}-port") for name in ("server", "agent", "admin", "health")}
    for name, port in ports.items():
        if port > _LAST_REGISTERED_PORT:
            raise OptionRefused(f"please do not try to use ephemeral port {port} for the {name} port")
    for name, port in ports.items():
        if port <= _LAST_RESERVED_PORT and not (name == "server" and flags.text("uds-name")):
            raise OptionRefused(f"please do not try to use reserved port {port} for the {name} port")


def _check_tokens(flags: FlagSet) -> None:
    if not uses_tokens(flags):
        return
    if flags.text("cluster-ca-cert"):
        raise OptionRefused("--cluster-ca-cert can not be used when agent authentication is enabled")
    for name in TOKEN_FLAGS:
        if not flags.text(name):
            raise OptionRefused(f"--{name} cannot be empty when agent authentication is enabled")


def _check_strategies(flags: FlagSet) -> None:
    try:
        parse_strategies(flags.text("proxy-strategies"))
    except ValueError as fault:
        raise OptionRefused(str(fault)) from None


def _check_tls(flags: FlagSet) -> None:
    version = flags.text("tls-min-version")
    if version and version not in TLS_VERSIONS:
        known = ", ".join(TLS_VERSIONS)
        raise OptionRefused(f"unsupported TLS version {quote(version)}, supported values are: {known}")
    for suite in flags.items("cipher-suites"):
        if suite not in CIPHER_SUITES:
            raise OptionRefused(f"cipher suite {suite} not supported, doesn't exist or considered as insecure")


def _check_identities(flags: FlagSet) -> None:
    check_file("agent identities", flags.text("agent-identities"))
    if flags.text("agent-identities") and "default" in parse_strategies(flags.text("proxy-strategies")):
        raise OptionRefused("--agent-identities has no effect with the strategy default; use destHost,defaultRoute")
    for identity in flags.items("frontend-identities"):
        try:
            check_identity(identity)
        except ValueError as fault:
            raise OptionRefused(str(fault)) from None


def _check_workers(flags: FlagSet) -> None:
    try:
        parse_workers(flags.text("workers"))
    except ValueError as fault:
        raise OptionRefused(f"--workers {fault}") from None


def _check_leases_and_timeouts(flags: FlagSet) -> None:
    if flags.switch("enable-lease-controller"):
        try:
            parse_labels(flags.text("lease-label"))
        except LabelError as fault:
            raise OptionRefused(str(fault)) from None
    for name in ("graceful-shutdown-timeout", "backend-dial-timeout"):
        if flags.number(name) < 0:
            raise OptionRefused(f"{name} must be >= 0, got {format_duration(flags.number(name))}")


GRPC_DEFAULT_PING_SECONDS: Final = 7200.0
"""grpc-go's server uses it for a keepalive time of 0."""
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
    values = drop_in.values_of(SERVER, flags)
    kubernetes = assemble(engines.KubernetesAccess, values, "kubernetes.")
    lease = engines.LeaseRule(values["lease.namespace"], labels) if values["lease"] else None
    logs = klog.recipe(flags, PROXY_SERVER.program)
    return engines.serve(settings, kubernetes, token_rule(flags), lease, logs)


def server_settings(flags: FlagSet) -> ServerSettings:
    """Turn checked flags into settings. Raises `OptionRefused` where upstream fails only once it has started."""
    if not flags.text("uds-name") and not flags.text("server-cert"):
        raise OptionRefused(f"failed to run the frontend server: {_NO_CERTIFICATE}")
    if not flags.text("cluster-cert"):
        raise OptionRefused(f"failed to run the agent server: {_NO_CERTIFICATE}")
    tokens = token_rule(flags)
    values = drop_in.values_of(SERVER, flags)
    values |= {
        "frontend": _frontend(flags, values),
        "mode": FrontendMode(values["mode"]),
        "strategies": parse_strategies(values["strategies"]),
        "tls_policy.minimum_version": values["tls_policy.minimum_version"] or "VersionTLS12",
        "token_identity": tokens.identity if tokens is not None else "",
        "workers": parse_workers(values["workers"]),
    }
    for path in ("agent_keepalive.interval_seconds", "frontend_keepalive.interval_seconds"):
        values[path] = max(values[path], GRPC_SHORTEST_PING_SECONDS) if values[path] > 0 else GRPC_DEFAULT_PING_SECONDS
    return assemble(ServerSettings, values)


def token_rule(flags: FlagSet) -> engines.TokenRule | None:
    namespace, service_account, audience = (flags.text(name) for name in TOKEN_FLAGS)
    return engines.TokenRule(namespace, service_account, audience) if uses_tokens(flags) else None


def _frontend(flags: FlagSet, values: dict[str, Any]) -> UnixFrontend | TcpFrontend:
    path = optional_path(flags.text("uds-name"))
    if path is not None:
        return UnixFrontend(path, replace_existing=flags.switch("delete-existing-uds-file"))
    address = ListenAddress(flags.text("server-bind-address"), flags.number("server-port"))
    return TcpFrontend(address, assemble(TlsFiles, values, "frontend.tls."))


def _lease_labels(flags: FlagSet) -> dict[str, str]:
    """Like upstream, parse the labels even if no lease is published, and fail without a prefix."""
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
        port = flags.number("agent-port")
        _log.warning("Anyone who reaches port %d can receive clients' traffic (CVE-2026-16242).", port)
        _log.warning("Set --cluster-ca-cert, or --agent-namespace, --agent-service-account and the audience.")


PROXY_SERVER: Final = drop_in.DropIn(
    program="proxy-server",
    command="proxy",
    about="A Konnectivity server: accepts requests from kube-apiserver and forwards them through agents.",
    refusal_prefix="failed to validate server options with ",
    flags=server_flags,
    check=check_server_flags,
    start=start,
)
