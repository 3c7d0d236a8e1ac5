"""What a server and an agent can be told, once parsed and validated: frozen values, units in the names.

One declaration per knob. How a flag spells it is `cli`'s business.
"""

from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.record import Record

MIB: Final = 1024 * 1024


class FrontendMode(Enum):
    """How clients ask for a tunnel; values as upstream's `--mode` spells them."""

    GRPC = "grpc"
    HTTP_CONNECT = "http-connect"


class ListenAddress(Record):
    host: str
    """Empty: every interface."""
    port: int
    """0 lets the kernel choose (tests)."""


class ServerAddress(Record):
    """Where agents reach a server, or what leads to several; its certificate must be for this host."""

    host: str
    """A name stands for all its addresses."""
    port: int


class TlsFiles(Record):
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    """Whom we trust; on a listener None means that no client certificate is asked for."""


class UnixFrontend(Record):
    path: Path
    replace_existing: bool = True


class TcpFrontend(Record):
    address: ListenAddress
    tls: TlsFiles


class TlsPolicy(Record):
    """What a listener accepts; upstream's `--tls-min-version` and `--cipher-suites`."""

    minimum_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    """Go names; they bind TLS 1.2 and older only. Empty: the library's default."""


class Keepalive(Record):
    interval_seconds: float = 3600.0
    """A PING after this much silence. Upstream's default is an hour; the native commands use 31 s, which is
    the shortest that grpc-go's enforcement (30 s) tolerates from a client."""
    answer_seconds: float = 20.0
    """The connection is dead when a PING stays unanswered this long (grpc-go's default)."""


class Limits(Record):
    tunnel_buffer_bytes: int = 16 * MIB
    """What may wait for one slow reader. Past it the stream that its agent's tunnels share is held back as long as
    the reader moves, and the tunnel is closed when it stands still. Only reached with upstream peers: our own are
    told to pause long before."""
    pause_above_bytes: int = 1 * MIB
    """A peer of our own is asked to pause a tunnel whose buffer grows past this."""
    own_streams: bool = True
    """Between our own ends every tunnel gets a stream of its own. Off: upstream's form, as with its programs."""
    half_closed_idle_seconds: float = 120.0
    """One side of a tunnel has ended and the other moves nothing for so long: then it is closed."""
    concurrent_dials: int = 1024
    """Dials an agent has under way at once; more wait in line and count against their own time limit."""


class ServerSettings(Record):
    server_id: str
    frontend: UnixFrontend | TcpFrontend
    agent_listen: ListenAddress
    agent_tls: TlsFiles
    mode: FrontendMode = FrontendMode.GRPC
    server_count: int = 1
    strategies: tuple[str, ...] = ("default",)
    """Any of default, destHost, defaultRoute, cidr, tried in this order."""
    tls_policy: TlsPolicy = TlsPolicy()
    agent_keepalive: Keepalive = Keepalive()
    frontend_keepalive: Keepalive = Keepalive()
    dial_timeout_seconds: float = 0.0
    """0: wait for the agent's answer as long as the client does (upstream's default)."""
    idle_tunnel_seconds: float = 0.0
    """A tunnel in which no byte has moved for so long is closed; 0: none is."""
    graceful_shutdown_seconds: float = 0.0
    """0: stop at once. More: unready first, stop accepting, wait this long for tunnels to end, then close."""
    health_listen: ListenAddress = ListenAddress("", 8092)
    admin_listen: ListenAddress = ListenAddress("127.0.0.1", 8095)
    enable_profiling: bool = False
    agent_identities: Path | None = None
    """Rules of konnectivity/identity.py: who may announce which identifiers. None: agents are believed."""
    token_identity: str = ""
    """`SA=namespace/name` where agents are let in by that account's tokens."""
    frontend_identities: tuple[str, ...] = ()
    """Who may ask for tunnels over TLS. Empty: whoever the CA vouches for, agents apart."""
    limits: Limits = Limits()


class AgentSettings(Record):
    agent_id: str
    servers: tuple[ServerAddress, ...]
    """All are connected to, besides those that leases publish."""
    tls: TlsFiles
    agent_identifiers: str = ""
    alpn_protocols: tuple[str, ...] = ()
    """Offered before `h2`."""
    sync_interval_seconds: float = 1.0
    sync_interval_cap_seconds: float = 10.0
    probe_interval_seconds: float = 1.0
    sync_forever: bool = False
    server_count_source: str = "default"
    """default: leases if they are counted, else what servers announce. max: the larger of both."""
    keepalive: Keepalive = Keepalive()
    token_path: Path | None = None
    """Read again at every connect; sent as it is."""
    dial_timeout_seconds: float = 5.0
    """Covers name lookup and connect; upstream's constant."""
    drain_linger_seconds: float = 5.0
    """After SIGTERM the agent leaves once neither tunnel nor dial has existed for this long."""
    health_listen: ListenAddress = ListenAddress("", 8093)
    admin_listen: ListenAddress = ListenAddress("127.0.0.1", 8094)
    enable_profiling: bool = False
    limits: Limits = Limits()
