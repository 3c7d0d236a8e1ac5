"""Settings of server and agent as frozen records, and one table each of the options that set them.

To add a setting, add a field here and a row below; flags, help and docs/flags.md are made from the row.
"""

from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.record import Record
from umbilical.tunnel.setting_rows import Setting, Table, Upstream, Value

MIB: Final = 1024 * 1024


class FrontendMode(Enum):
    """How clients request a tunnel; the values of upstream's `--mode`."""

    GRPC = "grpc"
    HTTP_CONNECT = "http-connect"


class ListenAddress(Record):
    host: str
    """Empty: every interface."""
    port: int
    """0 lets the kernel choose (tests)."""


class ServerAddress(Record):
    """Address of a server or of a load balancer for agents; the server's certificate must be for this host."""

    host: str
    """Agents connect to all addresses of a name."""
    port: int


class TlsFiles(Record):
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    """CA of the peers; on a listener None means that no client certificate is requested."""
    revoked: Path | None = None
    """Revocation lists of the CAs, for the peers of a listener."""


class UnixFrontend(Record):
    path: Path
    replace_existing: bool = True


class TcpFrontend(Record):
    address: ListenAddress
    tls: TlsFiles


class TlsPolicy(Record):
    """Upstream's `--tls-min-version` and `--cipher-suites`."""

    minimum_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    """Go names, for TLS 1.2 and older only. Empty: the library's default."""


class Keepalive(Record):
    interval_seconds: float = 3600.0
    """Silence before a PING is sent."""
    answer_seconds: float = 20.0
    """Time to answer a PING before the connection is closed (grpc-go's default)."""


class Limits(Record):
    tunnel_buffer_bytes: int = 16 * MIB
    """Maximum of buffered bytes for one slow reader. Above it the stream that all tunnels of the agent share is paused
    while the reader makes progress, and the tunnel is closed when it makes none. Only reached with upstream's peers:
    ours are told to pause earlier."""
    pause_above_bytes: int = 1 * MIB
    """Buffer size above which a peer of our own is told to pause a tunnel."""
    own_streams: bool = True
    """Use one HTTP/2 stream per tunnel with our own peers. Off: one shared stream, as upstream."""
    window_bytes: int = 0
    """Memory for receive windows that grow beyond the first; 0: a part of what the process may use."""
    half_closed_idle_seconds: float = 120.0
    """A tunnel with one side ended is closed when the other side is idle for this long."""
    concurrent_dials: int = 1024
    """Maximum concurrent dials of an agent; others wait, and their timeouts include the waiting."""
    tcp_keepalive_seconds: float = 15.0
    """Interval of TCP keepalive probes to endpoints and to clients over TCP; 0: none."""


class DestinationSettings(Record):
    """What the agent dials; rules as konnectivity/destinations.py reads them."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    path: Path | None = None
    """More rules; followed."""


class AuditSettings(Record):
    path: Path | None = None
    """None: no audit."""
    max_bytes: int = 100 * MIB


class CapSettings(Record):
    """Limits of konnectivity/caps.py; 0: none."""

    agents: int = 0
    agent_tunnels: int = 0
    client_tunnels: int = 0
    dial_rate: int = 0


class ServerSettings(Record):
    server_id: str
    frontend: UnixFrontend | TcpFrontend
    agent_listen: ListenAddress
    agent_tls: TlsFiles
    mode: FrontendMode = FrontendMode.GRPC
    server_count: int = 1
    workers: int = 1
    """Processes that share the load; each is a server of its own for agents, with the ID `server_id`-k."""
    strategies: tuple[str, ...] = ("default",)
    tls_policy: TlsPolicy = TlsPolicy()
    agent_keepalive: Keepalive = Keepalive()
    frontend_keepalive: Keepalive = Keepalive()
    dial_timeout_seconds: float = 0.0
    idle_tunnel_seconds: float = 0.0
    graceful_shutdown_seconds: float = 0.0
    """How long to wait for open tunnels to end after SIGTERM; 0: stop at once."""
    health_listen: ListenAddress = ListenAddress("", 8092)
    admin_listen: ListenAddress | UnixFrontend = ListenAddress("127.0.0.1", 8095)
    admin_tls: TlsFiles = TlsFiles()
    status_token_path: Path | None = None
    """Bearer token that a reader of the status must send over TCP; read again at each request."""
    expected_agents: int = 0
    """Fewer connected agents degrade the state; 0: any number will do."""
    enable_profiling: bool = False
    agent_identities: Path | None = None
    """Rules of konnectivity/identity.py: who may announce which identifiers. None: no restriction."""
    token_identity: str = ""
    """`SA=namespace/name` if agents authenticate with tokens of that service account."""
    frontend_identities: tuple[str, ...] = ()
    """Clients that may open tunnels over TLS. Empty: all with a certificate of the CA, except agents."""
    caps: CapSettings = CapSettings()
    audit: AuditSettings = AuditSettings()
    limits: Limits = Limits()

    def server_ids(self) -> tuple[str, ...]:
        """The IDs that agents meet: of this server, or of its workers."""
        if self.workers == 1:
            return (self.server_id,)
        return tuple(f"{self.server_id}-{index}" for index in range(self.workers))


class AgentSettings(Record):
    agent_id: str
    servers: tuple[ServerAddress, ...]
    """The agent connects to all of them, and to those that leases publish."""
    tls: TlsFiles
    agent_identifiers: str = ""
    alpn_protocols: tuple[str, ...] = ()
    sync_interval_seconds: float = 1.0
    sync_interval_cap_seconds: float = 10.0
    sync_forever: bool = False
    server_count_source: str = "default"
    keepalive: Keepalive = Keepalive()
    token_path: Path | None = None
    """Read again at every connect; sent unchanged."""
    dial_timeout_seconds: float = 5.0
    drain_linger_seconds: float = 5.0
    ready_servers: str = "any"
    """Which servers must be connected for `/readyz`: any of them, or all."""
    health_listen: ListenAddress = ListenAddress("", 8093)
    admin_listen: ListenAddress | UnixFrontend = ListenAddress("127.0.0.1", 8094)
    admin_tls: TlsFiles = TlsFiles()
    status_token_path: Path | None = None
    """Bearer token that a reader of the status must send over TCP; read again at each request."""
    enable_profiling: bool = False
    destinations: DestinationSettings = DestinationSettings()
    limits: Limits = Limits()


UPSTREAM: Final = "Upstream's default."
PING_AFTER: Final = "31s"
PING_ANSWER: Final = "10s"
_NO_EFFECT: Final = "Accepted without effect: "
_IN_BYTES: Final = _NO_EFFECT + "buffers are bounded in bytes here."
_ANY: Final = " Empty: every interface."
_ALWAYS_ON: Final = "This behavior is now thread safe and always on. This flag will be removed in a future release."
_SERVERS_LABEL: Final = "k8s-app=konnectivity-server"
_CONTENT_TYPE: Final = Setting(
    "", Value.TEXT, default="application/vnd.kubernetes.protobuf", upstream="kube-api-content-type",
    help=_NO_EFFECT + "requests to the Kubernetes API are JSON.", why=UPSTREAM,
)  # fmt: skip
_CONTENTION: Final = Setting(
    "", Value.SWITCH, upstream="enable-contention-profiling", help="Accepted with --enable-profiling, without effect."
)
_PROFILING: Final = Setting(
    "enable_profiling", Value.SWITCH, "--profiling", upstream="enable-profiling",
    help="Serve profiles on the admin address.",
)  # fmt: skip
_ADMIN_TLS: Final[Table] = (
    Setting("admin_tls.certificate", Value.FILE, "--admin-cert",
            help="Server certificate for the admin address, which then speaks HTTPS."),
    Setting("admin_tls.key", Value.FILE, "--admin-key", help="Private key of the certificate for the admin address."),
    Setting("status_token_path", Value.FILE, "--status-token-file",
            help="File with the bearer token for /v1/status; required, with TLS, unless --admin is loopback or a "
            "Unix socket."),
)  # fmt: skip
_ANSWER_WHY: Final = "A dead peer is detected within 41 s; upstream waits 20 s and has no flag."
_PING_WHY: Final = "grpc-go's servers accept a ping after 30 s of silence; one second more. Upstream: an hour."
_PROBE_WHY: Final = "Go's default; a dead host is detected after 150 s."
_WINDOWS_HELP: Final = (
    "Maximum of all receive windows beyond the first ones, e.g. 512Mi; auto: a quarter of the machine's memory or of "
    "the cgroup's limit, whichever is smaller."
)
_WINDOWS_WHY: Final = "Enough for hundreds of fast transfers over long distances; used only by readers that stop."
LOGGING: Final[Table] = (
    Setting("log.format", Value.TEXT, "--log-format", "text", help="Format of the log on standard error.",
            why="Easiest to read.", choices=("text", "json", "klog")),
    Setting("log.level", Value.TEXT, "--log-level", "info", choices=("info", "debug"),
            help="Log level: info logs one line per tunnel, debug logs more.", why="Enough to follow every tunnel."),
)  # fmt: skip

SERVER: Final[Table] = (
    Setting("frontend.tls.certificate", Value.FILE, "--cert", upstream="server-cert",
            help="Server certificate for clients that connect over TCP."),
    Setting("frontend.tls.key", Value.FILE, "--key", upstream="server-key",
            help="Private key of the server certificate for clients."),
    Setting("frontend.tls.authority", Value.FILE, "--ca", upstream="server-ca-cert",
            help="CA of client certificates; required for clients over TCP."),
    Setting("agent_tls.certificate", Value.FILE, "--agent-cert", upstream="cluster-cert", required=True,
            help="Server certificate for agents."),
    Setting("agent_tls.key", Value.FILE, "--agent-key", upstream="cluster-key", required=True,
            help="Private key of the server certificate for agents."),
    Setting("agent_tls.authority", Value.FILE, "--agent-ca", upstream="cluster-ca-cert",
            help="CA of agents' certificates; without it agents need no certificate."),
    Setting("frontend.tls.revoked", Value.FILE, "--crl",
            help="Revocation lists (PEM) of the CAs of client certificates, followed; revoked clients are cut."),
    Setting("agent_tls.revoked", Value.FILE, "--agent-crl",
            help="Revocation lists (PEM) of the CAs of agents' certificates, followed; revoked agents are cut."),
    Setting("mode", Value.TEXT, "--mode", "grpc", upstream="mode", choices=("grpc", "http-connect"),
            help="Protocol of clients: grpc or http-connect.", why=UPSTREAM),
    Setting("frontend.address", Value.PLACE, "--listen", required=True,
            help="Address for clients: a Unix socket, or TCP with mutual TLS.",
            upstream=(
                Upstream("uds-name", Value.TEXT, help="Unix socket for clients; excludes the TCP listener."),
                Upstream("delete-existing-uds-file", Value.SWITCH, "true",
                     "Delete an existing file at the path of the Unix socket before listening."),
                Upstream("server-port", Value.COUNT, "8090", "TCP port for clients; 0 with a Unix socket."),
                Upstream("server-bind-address", Value.TEXT, help="Address of the TCP port for clients." + _ANY),
            )),
    Setting("agent_listen", Value.LISTEN, "--agents", ":8091", help="Address for agents.", why=UPSTREAM,
            upstream=(
                Upstream("agent-port", Value.COUNT, "8091", "Port for agents."),
                Upstream("agent-bind-address", Value.TEXT, "", "Address of the port for agents." + _ANY),
            )),
    Setting("admin_listen", Value.LISTEN, "--admin", "127.0.0.1:8095", may_be_unix=True,
            help="Address for status, metrics and profiles.", why=UPSTREAM,
            upstream=(
                Upstream("admin-port", Value.COUNT, "8095", "Port for metrics and profiles."),
                Upstream("admin-bind-address", Value.TEXT, "127.0.0.1", "Address of the admin port." + _ANY),
            )),
    *_ADMIN_TLS,
    Setting("expected_agents", Value.COUNT, "--expected-agents",
            help="Number of agents below which the server's state is degraded; without it any number will do."),
    Setting("health_listen", Value.LISTEN, "--health", ":8092", help="Address for health, readiness and metrics.",
            why=UPSTREAM,
            upstream=(
                Upstream("health-port", Value.COUNT, "8092", "Port for health, readiness and metrics."),
                Upstream("health-bind-address", Value.TEXT, "", "Address of the health port." + _ANY),
            )),
    Setting("agent_keepalive.interval_seconds", Value.SECONDS, "--keepalive", PING_AFTER, why=_PING_WHY,
            help="Time without traffic before an agent, or a client in grpc mode, is pinged.",
            upstream=(
                Upstream("keepalive-time", default="1h", help="Time without traffic before an agent is pinged."),
            )),
    Setting("frontend_keepalive.interval_seconds", Value.SECONDS, "--keepalive", PING_AFTER, why=_PING_WHY,
            help="Time without traffic before a client in grpc mode is pinged.",
            upstream=(Upstream("frontend-keepalive-time", default="1h"),)),
    Setting("agent_keepalive.answer_seconds", Value.SECONDS, "--keepalive-answer", PING_ANSWER, why=_ANSWER_WHY,
            help="Close a connection if a ping is not answered within this time."),
    Setting("frontend_keepalive.answer_seconds", Value.SECONDS, "--keepalive-answer", PING_ANSWER, why=_ANSWER_WHY,
            help="Close a connection if a ping is not answered within this time."),
    _PROFILING,
    _CONTENTION,
    Setting("server_id", Value.ID, "--id", upstream="server-id", environment="PROXY_SERVER_ID",
            help="Identifier of this server; a random UUID if neither this nor PROXY_SERVER_ID is set."),
    Setting("server_count", Value.COUNT, "--count", "1", upstream="server-count",
            help="Number of servers that agents should connect to.", why=UPSTREAM),
    Setting("workers", Value.TEXT, "--workers", "1", upstream="workers", metavar="N|auto",
            help="Processes that share the load, each a server of its own for agents; auto: one per core.",
            why="One process uses one core, which is enough for most clusters."),
    Setting("tokens.namespace", Value.TEXT, "--token-namespace", upstream="agent-namespace",
            help="Namespace of the agents' service account; enables token checks."),
    Setting("tokens.service_account", Value.TEXT, "--token-service-account", upstream="agent-service-account",
            help="Name of the agents' service account."),
    Setting("tokens.audience", Value.TEXT, "--token-audience", upstream="authentication-audience",
            help="Audience that agents' tokens must have."),
    Setting("tokens.cache_seconds", Value.SECONDS, "--token-cache", "1m",
            help="How long a positive token review is reused: at most 1m, never past the token's exp; 0 disables it.",
            why="Agents that connect again cause no second review; upstream and the drop-in review at every connect."),
    Setting("kubernetes.kubeconfig", Value.FILE, "--kubeconfig", upstream="kubeconfig",
            help="Kubeconfig of the cluster for token reviews and leases; without it, the pod's service account."),
    Setting("kubernetes.requests_per_second", Value.FRACTION, "--kubernetes-qps", "300",
            help="Maximum requests per second to the Kubernetes API; 0 means the client's default, which is 5.",
            why="About as many agents as one server admits in a second; upstream: 0.",
            upstream=(Upstream("kubeconfig-qps", default="0"),)),
    Setting("kubernetes.burst", Value.COUNT, default="0", upstream="kubeconfig-burst",
            help="Maximum burst of requests to the Kubernetes API; 0 means the client's default.", why=UPSTREAM),
    _CONTENT_TYPE,
    Setting("strategies", Value.TEXT, "--strategies", "default", upstream="proxy-strategies",
            help="Strategies that choose an agent, in order: default, destHost, defaultRoute, cidr.", why=UPSTREAM),
    Setting("tls_policy.cipher_suites", Value.ITEMS, upstream="cipher-suites",
            help="Cipher suites for TLS 1.2, by their Go names; empty: the default list."),
    Setting("tls_policy.minimum_version", Value.TEXT, "--tls-min-version", "VersionTLS12",
            choices=("VersionTLS12", "VersionTLS13"), help="Minimum TLS version of all listeners.", why=UPSTREAM,
            upstream=(Upstream("tls-min-version", default="",
                           help="Minimum TLS version: VersionTLS10 to VersionTLS13; empty: VersionTLS12."),)),
    Setting("", Value.COUNT, default="10", upstream="xfr-channel-size", help=_IN_BYTES, why=UPSTREAM),
    Setting("lease", Value.SWITCH, "--publish-lease", upstream="enable-lease-controller",
            help="Publish this server's lease, by which agents count servers, and delete expired ones."),
    Setting("lease.namespace", Value.TEXT, "--lease-namespace", "kube-system", upstream="lease-namespace",
            help="Namespace of the servers' leases.", why=UPSTREAM),
    Setting("lease.labels", Value.TEXT, "--lease-labels", _SERVERS_LABEL, upstream="lease-label",
            help="Labels of this server's lease.", why=UPSTREAM),
    Setting("lease.address", Value.SERVER, "--advertise",
            help="Address of this server to publish in its lease, for agents to connect to directly."),
    Setting("lease.owner", Value.TEXT, "--lease-owner",
            help="Pod of this server, as NAME/UID, in the lease's namespace; Kubernetes deletes the lease with it.",
            why="A server whose rights are removed first, as by helm uninstall, cannot delete its lease."),
    Setting("graceful_shutdown_seconds", Value.SECONDS, "--graceful-shutdown", "30s",
            help="How long to wait for open tunnels to end after SIGTERM; 0 closes them at once.",
            why="The default of terminationGracePeriodSeconds; upstream: 0.",
            upstream=(Upstream("graceful-shutdown-timeout", default="0"),)),
    Setting("dial_timeout_seconds", Value.SECONDS, "--dial-timeout", "10s",
            help="How long to wait for an agent to answer a dial; 0 disables the limit.",
            why="Twice the agent's own limit; upstream: 0.", upstream=(Upstream("backend-dial-timeout", default="0"),)),
    Setting("idle_tunnel_seconds", Value.SECONDS, "--idle-tunnel-timeout", "0",
            help="Close a tunnel after this time without traffic; 0 disables the limit.",
            why="Upstream closes no idle tunnel, and a watch may be idle for hours."),
    Setting("limits.tcp_keepalive_seconds", Value.SECONDS, "--tcp-keepalive", "15s", why=_PROBE_WHY,
            help="Interval of TCP keepalive probes to clients over TCP; 0 disables them."),
    Setting("agent_identities", Value.FILE, "--agent-identities", upstream="agent-identities",
            help="File of rules that define which certificate or token may announce which identifiers."),
    Setting("frontend_identities", Value.TEXT, "--frontend-identities",
            help="Clients that may open tunnels over TCP: CN=…,URI=…; "
            "empty: all except agents.", upstream=(Upstream("frontend-identities", Value.ITEMS),)),
    Setting("audit.path", Value.OUTPUT, "--audit-file",
            help="File for a JSON line per tunnel: client, endpoint, agent, bytes and end; /dev/stdout works too."),
    Setting("audit.max_bytes", Value.SIZE, "--audit-size", "100Mi", why="Hundreds of thousands of tunnels.",
            help="Size at which the audit's file is renamed; five older ones are kept."),
    Setting("caps.agents", Value.LIMIT, "--max-agents", "10000",
            why="Twice the largest fleet of sizing.md; upstream: none.",
            help="Maximum of connected agents; further ones are refused. 0: no limit."),
    Setting("caps.agent_tunnels", Value.LIMIT, "--max-agent-tunnels", "20000",
            why="Far above what one agent carries in time; upstream: none.",
            help="Maximum of tunnels through one agent; further dials are refused. 0: no limit."),
    Setting("caps.client_tunnels", Value.LIMIT, "--max-client-tunnels", "50000",
            why="All watches, logs and webhooks of a large API server, many times over; upstream: none.",
            help="Maximum of tunnels of one client, by its certificate or its process; further dials are refused. "
            "0: no limit."),
    Setting("caps.dial_rate", Value.LIMIT, "--max-dial-rate", "2000",
            why="Half of what one core carries (benchmarks.md), and far above an API server's; upstream: none.",
            help="Maximum of dials in a second; further ones are refused. 0: no limit."),
    Setting("", Value.SWITCH, help=_ALWAYS_ON,
            upstream=(Upstream("warn-on-channel-limit", default="true", deprecated=_ALWAYS_ON),)),
    Setting("limits.window_bytes", Value.SIZE, "--window-memory", "auto", help=_WINDOWS_HELP, why=_WINDOWS_WHY),
    *LOGGING,
)  # fmt: skip

AGENT: Final[Table] = (
    Setting("tls.certificate", Value.FILE, "--cert", upstream="agent-cert", help="Certificate of this agent."),
    Setting("tls.key", Value.FILE, "--key", upstream="agent-key", help="Private key of this agent's certificate."),
    Setting("tls.authority", Value.FILE, "--ca", required=True, help="CA of the servers' certificates.",
            upstream=(Upstream("ca-cert", help="CA of the servers' certificates; required."),)),
    Setting("servers", Value.SERVERS, "--server",
            help="Address of a server or of a load balancer; repeatable. "
            "The agent connects to every address of a name.",
            upstream=(
                Upstream("proxy-server-host", Value.TEXT, "127.0.0.1",
                     "Name or address of a server or of a load balancer."),
                Upstream("proxy-server-port", Value.COUNT, "8091", "The servers' port for agents."),
            )),
    Setting("alpn_protocols", Value.ITEMS, "--alpn", upstream="alpn-proto",
            help="Protocols to offer in the TLS handshake before h2; repeatable."),
    Setting("health_listen", Value.LISTEN, "--health", ":8093", help="Address for health, readiness and metrics.",
            why=UPSTREAM,
            upstream=(
                Upstream("health-server-host", Value.TEXT, "", "Address of the health port." + _ANY),
                Upstream("health-server-port", Value.COUNT, "8093", "Port for health, readiness and metrics."),
            )),
    Setting("admin_listen", Value.LISTEN, "--admin", "127.0.0.1:8094", may_be_unix=True,
            help="Address for status and profiles.", why=UPSTREAM,
            upstream=(
                Upstream("admin-server-port", Value.COUNT, "8094", "Port for profiles."),
                Upstream("admin-bind-address", Value.TEXT, "127.0.0.1", "Address of the admin port." + _ANY),
            )),
    Setting("ready_servers", Value.TEXT, "--ready-servers", "any", choices=("any", "all"),
            help="Servers that must be connected for /readyz to succeed: any of them, or all.",
            why="As upstream; with all, a rollout of agents waits for every server."),
    *_ADMIN_TLS,
    _PROFILING,
    _CONTENTION,
    Setting("agent_id", Value.ID, "--id", upstream="agent-id", environment="PROXY_AGENT_ID",
            help="Identifier of this agent; a random UUID if neither this nor PROXY_AGENT_ID is set."),
    Setting("agent_identifiers", Value.TEXT, "--identifiers", upstream="agent-identifiers",
            help="Destinations that this agent can reach, e.g. ipv4=1.2.3.4&host=a&default-route=true."),
    Setting("sync_interval_seconds", Value.SECONDS, "--sync-interval", "1s", upstream="sync-interval",
            help="First interval between attempts to connect to further servers.", why=UPSTREAM),
    Setting("sync_interval_cap_seconds", Value.SECONDS, "--sync-interval-cap", "10s", upstream="sync-interval-cap",
            help="Longest interval between attempts to connect, after failures.", why=UPSTREAM),
    Setting("", Value.SECONDS, "--probe-interval", "1s", upstream="probe-interval", why=UPSTREAM,
            help=_NO_EFFECT + "a closed connection is detected at once, a silent one by pings."),
    Setting("keepalive.interval_seconds", Value.SECONDS, "--keepalive", PING_AFTER, why=_PING_WHY,
            help="Time without traffic before a server is pinged.",
            upstream=(Upstream("keepalive-time", default="1h"),)),
    Setting("keepalive.answer_seconds", Value.SECONDS, "--keepalive-answer", PING_ANSWER, why=_ANSWER_WHY,
            help="Close a connection if a ping is not answered within this time."),
    Setting("token_path", Value.FILE, "--token-file", upstream="service-account-token-path",
            help="File with the service account token for the server; read again at every connect."),
    Setting("", Value.SWITCH, upstream="warn-on-channel-limit", help=_IN_BYTES),
    Setting("sync_forever", Value.SWITCH, "--sync-forever", upstream="sync-forever",
            help="Keep searching for servers after all known ones are connected."),
    Setting("", Value.COUNT, default="150", upstream="xfr-channel-size", help=_IN_BYTES, why=UPSTREAM),
    Setting("leases", Value.SWITCH, "--count-leases", upstream="count-server-leases",
            help="Count servers by their leases, and connect to the addresses that leases publish."),
    Setting("leases.namespace", Value.TEXT, "--lease-namespace", "kube-system", upstream="lease-namespace",
            help="Namespace of the servers' leases.", why=UPSTREAM),
    Setting("leases.selector", Value.SELECTOR, "--lease-selector", _SERVERS_LABEL, why=UPSTREAM,
            help="Label selector for the servers' leases; empty: all leases.",
            upstream=(
                Upstream("lease-label-selector"),
                Upstream("lease-label", help="Older name of --lease-label-selector.", alias_of="lease-label-selector"),
            )),
    Setting("server_count_source", Value.TEXT, "--count-source", "default", upstream="server-count-source",
            choices=("default", "max"), why=UPSTREAM,
            help="Number of servers to connect to: default (by leases if counted, else as servers announce) or max "
            "(the larger of both)."),
    Setting("kubernetes.kubeconfig", Value.FILE, "--kubeconfig", upstream="kubeconfig",
            help="Kubeconfig of the cluster that has the leases; without it, the pod's service account."),
    _CONTENT_TYPE,
    Setting("drain_linger_seconds", Value.SECONDS, "--drain-linger", "5s", upstream="drain-linger",
            help="After SIGTERM, exit once no tunnel or dial has existed for this long.",
            why="Time for the last dials of a server to arrive; upstream does not exit on its own."),
    Setting("dial_timeout_seconds", Value.SECONDS, "--dial-timeout", "5s",
            help="Timeout for name lookup and connect.", why="Upstream's constant."),
    Setting("limits.concurrent_dials", Value.COUNT, "--max-dials", "1024", help="Maximum concurrent dials.",
            why="Far above the concurrent dials of an API server; upstream has no limit."),
    Setting("destinations.allowed", Value.ITEMS, "--allow-destination", upstream="allow-destination", metavar="RULE",
            help="Destination to dial although it is denied by default: a network, address, host name, .suffix or *, "
            "with :PORT or :FIRST-LAST behind it; repeatable."),
    Setting("destinations.denied", Value.ITEMS, "--deny-destination", upstream="deny-destination", metavar="RULE",
            help="Destination never to dial; others: whatever no --allow-destination names; local: link-local "
            "addresses, the agent's loopback and its own ports; repeatable."),
    Setting("destinations.path", Value.FILE, "--destinations-file", upstream="destinations-file",
            help="File with lines `allow RULE` and `deny RULE`, read again when it changes."),
    Setting("limits.tcp_keepalive_seconds", Value.SECONDS, "--tcp-keepalive", "15s", why=_PROBE_WHY,
            help="Interval of TCP keepalive probes to endpoints; 0 disables them."),
    Setting("limits.window_bytes", Value.SIZE, "--window-memory", "auto", help=_WINDOWS_HELP, why=_WINDOWS_WHY),
    *LOGGING,
)  # fmt: skip
