"""What a proxy can be told, once parsed and validated: frozen values, units in the names."""

from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.dialer.settings import DialerSettings
from umbilical.record import Record
from umbilical.tunnel.settings import ListenAddress, TlsFiles

LOOPBACK: Final = ("127.0.0.1", "::1")
"""Where a sidecar listens unless told otherwise: its users share its pod."""


class Resolution(Enum):
    """Who turns a name into addresses."""

    AGENT = "agent"
    """Nobody here: the name goes through the tunnel, and the agent's own resolver finds it."""
    GUEST = "guest"
    """The hosted cluster's DNS, asked through the tunnel."""
    SERVICE = "service"
    """The hosted cluster's API for names of Services, its DNS for all others."""
    MANAGEMENT = "management"
    """This machine's resolver; the addresses are dialled through the tunnel."""
    GUEST_THEN_MANAGEMENT = "guest-then-management"
    """As SERVICE while the tunnel works. While it does not, this machine's resolver, and dials without the tunnel."""


class OutboundSettings(Record):
    """How a proxy gets from a host and port to a connection."""

    dialer: DialerSettings
    resolution: Resolution = Resolution.GUEST
    guest_dns: tuple[str, ...] = ()
    """Addresses of the hosted cluster's DNS servers, "IP" or "IP:port"; none: looked up as `guest_dns_service`."""
    guest_dns_service: str = "openshift-dns/dns-default"
    """NAMESPACE/NAME in the hosted cluster; needs `kubeconfig`."""
    cluster_domain: str = "cluster.local"
    kubeconfig: Path | None = None
    """Of the hosted cluster; may get Services and nothing else."""
    prefer_ipv4: bool = False
    direct_suffixes: tuple[str, ...] = ()
    """Hosts under these leave by this machine's own network, through its proxy variables; none: nothing does."""
    never_direct: tuple[str, ...] = ()
    """Exact hosts that are not, whatever the suffixes say."""


class ListenerSettings(Record):
    listen: tuple[ListenAddress, ...]
    ipv6_if_there: bool = False
    """An IPv6 address is left out on a machine that has none; so with the default, never with what a user gave."""
    health: ListenAddress | None = None
    """Liveness, readiness and metrics; None: no such port."""
    max_connections: int = 4096
    """More are closed at once, and counted."""
    handshake_seconds: float = 30.0
    """For a client to say what it wants, from its first byte to its last."""
    idle_seconds: float = 3600.0
    """A connection in which no byte has moved for so long is closed; 0: none is."""
    drain_seconds: float = 30.0
    """After SIGTERM: no new connections, and this long for those that are open."""
    buffer_bytes: int = 256 * 1024
    """Read ahead per direction and connection."""


class Socks5Settings(Record):
    listener: ListenerSettings
    outbound: OutboundSettings
    credentials: Path | None = None
    """Lines of USER:PASSWORD; where it is given, username/password is asked for. Read again when it changes."""


class HttpsSettings(Record):
    listener: ListenerSettings
    outbound: OutboundSettings
    http_proxy: str = ""
    """The user's proxy for http:// URLs, behind the tunnel; may hold credentials, so it is never shown."""
    https_proxy: str = ""
    """The same for https:// URLs and CONNECT."""
    no_proxy: str = ""
    proxy_authority: Path | None = None
    """Extra CAs for a proxy that speaks TLS, beside the system's."""
    http_proxy_file: Path | None = None
    """Holds the URL instead of `http_proxy`; read again when it changes."""
    https_proxy_file: Path | None = None
    proxy_credentials: Path | None = None
    """USER:PASSWORD for proxies whose URL names no user; read again when it changes."""
    listen_tls: TlsFiles = TlsFiles()
    """With a certificate: clients speak TLS to the proxy. With an authority, they show certificates of it."""
    default_connect_port: int | None = None
    """For CONNECT without a port; None: refused."""

    def __repr__(self) -> str:
        return f"HttpsSettings({self.listener!r}, {self.outbound!r}, …)"
