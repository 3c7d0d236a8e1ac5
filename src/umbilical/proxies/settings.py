"""The settings of the proxies: frozen values with units in the names, and one table of flags for each proxy.

A new setting is a field here and a row below; flags, help and docs/flags.md are generated from the row.
"""

from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.dialer.settings import DialerSettings, Protocol
from umbilical.record import Record
from umbilical.tunnel.setting_rows import Setting, Table, Upstream, Value
from umbilical.tunnel.settings import LOGGING, ListenAddress, TlsFiles

LOOPBACK: Final = ("127.0.0.1", "::1")
"""Default listen addresses: the users of a sidecar share its pod."""
SOCKS5_PORT: Final = 1080
"""IANA's port for SOCKS."""
HTTPS_PORT: Final = 3128
"""Squid's port, the usual one of an HTTP proxy."""


class Resolution(Enum):
    """Where names are resolved."""

    AGENT = "agent"
    """The agent's own resolver: the name is sent through the tunnel unresolved."""
    HOSTED = "guest"
    """The hosted cluster's DNS, queried through the tunnel."""
    SERVICE = "service"
    """The hosted cluster's API for names of Services, its DNS for all others."""
    MANAGEMENT = "management"
    """This machine's resolver; addresses are dialled through the tunnel."""
    HOSTED_THEN_MANAGEMENT = "guest-then-management"
    """As SERVICE while the tunnel works; otherwise this machine's resolver, and dials without the tunnel."""


class OutboundSettings(Record):
    """How a proxy resolves names and opens connections."""

    dialer: DialerSettings
    resolution: Resolution = Resolution.HOSTED
    guest_dns: tuple[str, ...] = ()
    """Addresses of the hosted cluster's DNS servers, "IP" or "IP:port"; empty: looked up as `guest_dns_service`."""
    guest_dns_service: str = "openshift-dns/dns-default"
    """NAMESPACE/NAME in the hosted cluster; needs `kubeconfig`."""
    cluster_domain: str = "cluster.local"
    kubeconfig: Path | None = None
    """Of the hosted cluster; needs permission to get Services and nothing else."""
    prefer_ipv4: bool = False
    direct_suffixes: tuple[str, ...] = ()
    """Hosts below these domains are dialled by this machine's network and HTTPS_PROXY, not the tunnel."""
    never_direct: tuple[str, ...] = ()
    """Hosts that always use the tunnel, in spite of `direct_suffixes`."""


class ListenerSettings(Record):
    listen: tuple[ListenAddress, ...]
    ipv6_if_there: bool = False
    """Skip an IPv6 address on a machine without IPv6: for default addresses, not for given ones."""
    health: ListenAddress | None = None
    """Address for liveness, readiness and metrics; None: no health port."""
    max_connections: int = 4096
    """Further ones are closed at once, and counted."""
    handshake_seconds: float = 30.0
    """How long a client may take to send its request."""
    idle_seconds: float = 3600.0
    """Close a connection in which no byte has moved for this long; 0: never."""
    drain_seconds: float = 30.0
    """How long open connections may take to end after SIGTERM."""
    buffer_bytes: int = 256 * 1024
    """Read buffer per direction and connection."""


class Socks5Settings(Record):
    listener: ListenerSettings
    outbound: OutboundSettings
    credentials: Path | None = None
    """File with lines of USER:PASSWORD: requires authentication. Read again when it changes."""


class HttpsSettings(Record):
    listener: ListenerSettings
    outbound: OutboundSettings
    http_proxy: str = ""
    """The user's proxy for http:// URLs, behind the tunnel; may hold credentials, so it is never printed."""
    https_proxy: str = ""
    """The same for https:// URLs and CONNECT."""
    no_proxy: str = ""
    proxy_authority: Path | None = None
    """CAs, in addition to the system's, for a user's proxy with an https:// URL."""
    http_proxy_file: Path | None = None
    """File with the URL, instead of `http_proxy`; read again when it changes."""
    https_proxy_file: Path | None = None
    proxy_credentials: Path | None = None
    """File with USER:PASSWORD for proxies whose URL has no user; read again when it changes."""
    listen_tls: TlsFiles = TlsFiles()
    """With a certificate: TLS for clients. With an authority: client certificates are required."""
    default_connect_port: int | None = None
    """For CONNECT without a port; None: refused."""

    def __repr__(self) -> str:
        return f"HttpsSettings({self.listener!r}, {self.outbound!r}, …)"


_MOUNTS: Final = "/etc/konnectivity"


def _shared(port: int) -> Table:
    """Return the rows of both proxies; `port` is the native command's."""
    return (
        Setting("outbound.dialer.servers", Value.TARGETS, "--server", required=True,
                help="Address of a server's port for clients; repeatable, tried in this order.",
                upstream=(
                    Upstream("konnectivity-hostname", Value.TEXT, "konnectivity-server-local",
                             "Host of the server, as in its certificate."),
                    Upstream("konnectivity-port", Value.PORT, "8090", "The server's port for clients."),
                )),
        Setting("listener.listen", Value.LISTENERS, "--listen", f"127.0.0.1:{port} and [::1]:{port}",
                help="Address for clients; repeatable.",
                why="Users share the machine or the pod; HyperShift's proxy listens on every interface.",
                upstream=(
                    Upstream("serving-port", Value.PORT, "8090", "Port for clients."),
                    Upstream("bind-address", Value.ITEMS, ",".join(LOOPBACK),
                             "Addresses to listen on; :: is every interface."),
                )),
        Setting("outbound.direct_suffixes.cloud_apis", Value.SWITCH, "--direct-to-cloud-apis",
                upstream="connect-directly-to-cloud-apis",
                help="Connect to the APIs of well-known clouds by this machine's network and HTTPS_PROXY, not the "
                "tunnel."),
        Setting("outbound.prefer_ipv4", Value.SWITCH, "--prefer-ipv4", upstream="prefer-ipv4",
                help="Use IPv6 addresses of a name only if it has no IPv4 addresses."),
        Setting("outbound.dialer.tls.authority", Value.FILE, "--ca",
                help="CA of the servers' certificates; required for servers over TCP.",
                upstream=(Upstream("ca-cert-path", default=f"{_MOUNTS}/proxy-ca/ca.crt"),)),
        Setting("outbound.dialer.tls.certificate", Value.FILE, "--cert", help="Client certificate for the servers.",
                upstream=(Upstream("tls-cert-path", default=f"{_MOUNTS}/proxy-client/tls.crt"),)),
        Setting("outbound.dialer.tls.key", Value.FILE, "--key",
                help="Private key of the client certificate for the servers.",
                upstream=(Upstream("tls-key-path", default=f"{_MOUNTS}/proxy-client/tls.key"),)),
        Setting("listener.health", Value.LISTEN, "--health",
                help="Address for liveness, readiness and metrics; none if unset.",
                upstream=(Upstream("health-port", Value.PORT, "0",
                                   "Port for liveness, readiness and metrics on every interface; 0: none."),)),
        Setting("outbound.dialer.protocol", Value.TEXT, "--protocol", "http-connect",
                choices=tuple(protocol.value for protocol in Protocol),
                help="Protocol that the servers speak with clients.", why="HyperShift's servers speak it."),
        Setting("outbound.dialer.servers.server_name", Value.TEXT, "--server-name",
                help="Name in the servers' certificates, if it is not the host of --server."),
        Setting("outbound.guest_dns", Value.ITEMS, "--guest-dns", metavar="IP[:PORT]",
                help="DNS server of the hosted cluster; repeatable."),
        Setting("outbound.guest_dns_service", Value.TEXT, "--guest-dns-service", "openshift-dns/dns-default",
                metavar="NAMESPACE/NAME", help="Service of the hosted cluster's DNS, looked up with --kubeconfig.",
                why="OpenShift's."),
        Setting("outbound.kubeconfig", Value.FILE, "--kubeconfig", environment="KUBECONFIG",
                help="Kubeconfig of the hosted cluster; needs permission to get Services and nothing else."),
        Setting("outbound.cluster_domain", Value.TEXT, "--cluster-domain", "cluster.local",
                help="DNS domain of the hosted cluster.", why="Kubernetes' default."),
        Setting("outbound.direct_suffixes", Value.ITEMS, "--direct-suffix", metavar="DOMAIN",
                help="Connect to hosts below this domain by this machine's network and HTTPS_PROXY, not the tunnel; "
                "repeatable."),
        Setting("outbound.never_direct", Value.ITEMS, "--never-direct", metavar="HOST",
                help="Host that is always reached through the tunnel, even while the tunnel is broken; repeatable."),
        Setting("listener.max_connections", Value.COUNT, "--max-connections", "4096",
                help="Maximum open connections of clients; further ones are closed at once.",
                why="Far above what the pods of one control plane open at once."),
        Setting("listener.handshake_seconds", Value.SECONDS, "--handshake-timeout", "30s",
                help="How long a client may take to send its request.", why="A slow client, not a stuck one."),
        Setting("listener.idle_seconds", Value.SECONDS, "--idle-timeout", "1h",
                help="Close a connection in which no byte has moved for this long; 0s: never.",
                why="Longer than a watch is silent."),
        Setting("listener.drain_seconds", Value.SECONDS, "--drain", "30s",
                help="How long open connections may take to end after SIGTERM.",
                why="The default of terminationGracePeriodSeconds."),
        Setting("outbound.dialer.connect_seconds", Value.SECONDS, "--connect-timeout", "10s",
                help="Timeout for a TCP connection to one address of a server.", why="Several lost SYN packets."),
        Setting("outbound.dialer.tls_seconds", Value.SECONDS, "--tls-timeout", "10s",
                help="Timeout for the TLS handshake with a server.", why="As --connect-timeout."),
        Setting("outbound.dialer.reply_seconds", Value.SECONDS, "--reply-timeout", "30s",
                help="How long to wait for a server to answer a dial.",
                why="Covers the agent's own 5 s and redials by other agents."),
    )  # fmt: skip


SOCKS5: Final[Table] = (
    *_shared(SOCKS5_PORT),
    Setting("outbound.resolution", Value.TEXT, "--resolve", choices=tuple(one.value for one in Resolution),
            help="Where names are resolved; default: guest if --guest-dns or --kubeconfig is given, else agent.",
            upstream=(
                Upstream("resolve-from-guest-cluster-dns", Value.SWITCH,
                         help="Accepted and ignored: the hosted cluster's DNS is always used, unless the resolver is "
                         "disabled."),
                Upstream("resolve-from-management-cluster-dns", Value.SWITCH,
                         help="With --resolve-from-guest-cluster-dns: use this machine's resolver while the tunnel "
                         "does not work."),
                Upstream("disable-resolver", Value.SWITCH,
                         help="Send names through the tunnel as they are; overrides the two --resolve-from flags."),
            )),
    Setting("credentials", Value.FILE, "--credentials-file",
            help="Require a password: file with lines of USER:PASSWORD, read again when it changes."),
    *LOGGING,
)  # fmt: skip

HTTPS: Final[Table] = (
    *_shared(HTTPS_PORT),
    Setting("http_proxy", Value.SECRET, "--http-proxy", metavar="URL", environment="KONNECTIVITY_HTTP_PROXY",
            help="The user's proxy for http:// URLs, behind the tunnel.",
            upstream=(Upstream("http-proxy", help="The user's proxy for http:// URLs, behind the tunnel; or set "
                               "KONNECTIVITY_HTTP_PROXY."),)),
    Setting("https_proxy", Value.SECRET, "--https-proxy", metavar="URL", environment="KONNECTIVITY_HTTPS_PROXY",
            help="The user's proxy for https:// URLs and CONNECT, behind the tunnel.",
            upstream=(Upstream("https-proxy", help="The user's proxy for https:// URLs and CONNECT, behind the tunnel; "
                               "or set KONNECTIVITY_HTTPS_PROXY."),)),
    Setting("no_proxy", Value.TEXT, "--no-proxy", metavar="LIST", environment="KONNECTIVITY_NO_PROXY",
            help="Hosts that bypass the user's proxy, as in NO_PROXY.",
            upstream=(Upstream("no-proxy", help="Hosts that bypass the user's proxy, as in NO_PROXY; or set "
                               "KONNECTIVITY_NO_PROXY."),)),
    Setting("http_proxy_file", Value.FILE, upstream="http-proxy-file",
            help="File with the value of --http-proxy; read again when it changes."),
    Setting("https_proxy_file", Value.FILE, upstream="https-proxy-file",
            help="File with the value of --https-proxy; read again when it changes."),
    Setting("proxy_authority", Value.FILE, "--proxy-ca", upstream="proxy-ca-path",
            help="CAs, in addition to the system's, for a user's proxy with an https:// URL."),
    Setting("outbound.resolution", Value.TEXT, "--resolve", choices=tuple(one.value for one in Resolution),
            help="Where names are resolved; default: guest if --guest-dns or --kubeconfig is given, else agent.",
            upstream=(Upstream("disable-resolver", Value.SWITCH,
                               help="Send names through the tunnel as they are; needs no KUBECONFIG."),)),
    Setting("proxy_credentials", Value.FILE, "--proxy-credentials-file",
            help="File with USER:PASSWORD for the user's proxy; or give its URL with both in "
            "UMBILICAL_PROXY_HTTPS_HTTPS_PROXY."),
    Setting("listen_tls.certificate", Value.FILE, "--listen-cert",
            help="Server certificate for clients; enables TLS."),
    Setting("listen_tls.key", Value.FILE, "--listen-key", help="Private key of the server certificate for clients."),
    Setting("listen_tls.authority", Value.FILE, "--listen-ca",
            help="CA of client certificates; clients without one are refused."),
    *LOGGING,
)  # fmt: skip
