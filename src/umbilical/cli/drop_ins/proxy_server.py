"""`proxy-server`: our server under upstream's name and flags."""

import logging
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
from umbilical.cli.drop_ins.go_values import format_duration, quote
from umbilical.cli.drop_ins.pflag import BOOL, DURATION, FLOAT, INT, STRING, STRING_SLICE, Flag, FlagSet
from umbilical.cluster.labels import LabelError, parse_labels
from umbilical.konnectivity.identity import check_identity
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

HOUR: Final = 3600 * 1_000_000_000
_LAST_REGISTERED_PORT: Final = 49151
_LAST_RESERVED_PORT: Final = 1023
_ALWAYS_ON: Final = "This behavior is now thread safe and always on. This flag will be removed in a future release."
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
"""What Go calls secure (1.26)."""
TOKEN_FLAGS: Final = ("agent-namespace", "agent-service-account", "authentication-audience")


def server_flags() -> tuple[Flag, ...]:
    """Return the table; the server's id is drawn here unless the environment names it."""
    server_id = os.environ.get("PROXY_SERVER_ID") or random_id()
    return (
        Flag("server-cert", STRING, "", "certificate of the TCP listener for clients"),
        Flag("server-key", STRING, "", "key of the TCP listener for clients"),
        Flag("server-ca-cert", STRING, "", "CA of client certificates; required unless --uds-name is given"),
        Flag("cluster-cert", STRING, "", "certificate of the listener for agents"),
        Flag("cluster-key", STRING, "", "key of the listener for agents"),
        Flag("cluster-ca-cert", STRING, "", "CA of agents' certificates; without it no certificate is asked for"),
        Flag("mode", STRING, "grpc", "how clients ask for tunnels: grpc or http-connect"),
        Flag("uds-name", STRING, "", "Unix socket for clients; excludes the TCP listener"),
        Flag("delete-existing-uds-file", BOOL, True, "remove a file in the place of the Unix socket first"),
        Flag("server-port", INT, 8090, "TCP port for clients; 0 with a Unix socket"),
        Flag("server-bind-address", STRING, "", "address of the TCP listener for clients; empty is every interface"),
        Flag("agent-port", INT, 8091, "port for agents"),
        Flag("agent-bind-address", STRING, "", "address of the listener for agents; empty is every interface"),
        Flag("admin-port", INT, 8095, "port for metrics and profiles"),
        Flag("admin-bind-address", STRING, "127.0.0.1", "address of the admin listener; empty is every interface"),
        Flag("health-port", INT, 8092, "port for health and readiness"),
        Flag("health-bind-address", STRING, "", "address of the health listener; empty is every interface"),
        Flag("keepalive-time", DURATION, HOUR, "silence after which an agent is pinged"),
        Flag("frontend-keepalive-time", DURATION, HOUR, "silence after which a client in grpc mode is pinged"),
        Flag("enable-profiling", BOOL, False, "serve profiles on the admin port"),
        Flag("enable-contention-profiling", BOOL, False, "accepted with --enable-profiling; without effect"),
        Flag("server-id", STRING, server_id, "this server's id; PROXY_SERVER_ID sets it too"),
        Flag("server-count", INT, 1, "how many servers agents should look for"),
        Flag("agent-namespace", STRING, "", "namespace of the agents' service account; turns token checks on"),
        Flag("agent-service-account", STRING, "", "name of the agents' service account"),
        Flag("authentication-audience", STRING, "", "audience that agents' tokens must have"),
        Flag("kubeconfig", STRING, "", "how to reach the apiserver for tokens and leases; empty is in-cluster"),
        Flag("kubeconfig-qps", FLOAT, 0.0, "requests per second to the apiserver; 0 is the client's default"),
        Flag("kubeconfig-burst", INT, 0, "burst of requests to the apiserver; 0 is the client's default"),
        Flag("kube-api-content-type", STRING, DEFAULT_KUBERNETES_CONTENT_TYPE, "accepted; JSON is spoken"),
        Flag("proxy-strategies", STRING, "default", "in this order: default, destHost, defaultRoute, cidr"),
        Flag("cipher-suites", STRING_SLICE, (), "Go names of the suites for TLS 1.2; empty is the default list"),
        Flag("tls-min-version", STRING, "", "VersionTLS10 to VersionTLS13; empty is VersionTLS12"),
        Flag("xfr-channel-size", INT, 10, "accepted; buffers are bounded in bytes here"),
        Flag("enable-lease-controller", BOOL, False, "publish this server's lease and collect expired ones"),
        Flag("lease-namespace", STRING, "kube-system", "namespace of the leases"),
        Flag("lease-label", STRING, "k8s-app=konnectivity-server", "labels of the leases"),
        Flag("graceful-shutdown-timeout", DURATION, 0, "how long to let tunnels end at shutdown; 0 stops at once"),
        Flag("backend-dial-timeout", DURATION, 0, "how long an agent may take to answer a dial; 0 is for ever"),
        Flag(
            "agent-identities", STRING, "", "file of rules: which certificate or token may announce which identifiers"
        ),
        Flag(
            "frontend-identities", STRING_SLICE, (), "who may ask for tunnels over TCP: CN=…; empty is all but agents"
        ),
        Flag("warn-on-channel-limit", BOOL, True, _ALWAYS_ON, deprecated=_ALWAYS_ON),
    )


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
        raise OptionRefused("--agent-identities binds nothing with the strategy default; use destHost,defaultRoute")
    for identity in flags.items("frontend-identities"):
        try:
            check_identity(identity)
        except ValueError as fault:
            raise OptionRefused(str(fault)) from None


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
