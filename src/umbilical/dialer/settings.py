"""Settings for reaching the servers of one tunnel."""

from enum import Enum
from pathlib import Path

from umbilical.record import Record
from umbilical.tunnel.settings import TlsFiles


class Protocol(Enum):
    """Protocol of a server's frontend; values as in upstream's `--mode`."""

    HTTP_CONNECT = "http-connect"
    GRPC = "grpc"


class UnixServer(Record):
    """A server on this machine; the mode of its socket file decides who may connect."""

    path: Path


class TcpServer(Record):
    host: str
    """All addresses of a name are tried in turn."""
    port: int
    server_name: str = ""
    """Name in its certificate; empty: `host`. Differs from it behind a forwarded port."""


class DialerSettings(Record):
    servers: tuple[UnixServer | TcpServer, ...]
    """Tried in this order; those that failed recently come last."""
    tls: TlsFiles = TlsFiles()
    """For TCP servers: their CA, the client certificate and key."""
    protocol: Protocol = Protocol.HTTP_CONNECT
    connect_seconds: float = 10.0
    """Timeout for TCP to one address of a server."""
    tls_seconds: float = 10.0
    """Timeout for the TLS handshake with a server."""
    reply_seconds: float = 30.0
    """Timeout for the server's answer to a dial: covers the agent's own 5 s and redials."""
    buffer_bytes: int = 256 * 1024
    """Buffer per connection and direction."""
