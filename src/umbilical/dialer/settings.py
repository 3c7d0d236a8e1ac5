"""How to reach the servers of one tunnel: frozen values, units in the names."""

from enum import Enum
from pathlib import Path

from umbilical.record import Record
from umbilical.tunnel.settings import TlsFiles


class Protocol(Enum):
    """How a server's frontend is asked; values as upstream's `--mode` spells them."""

    HTTP_CONNECT = "http-connect"
    GRPC = "grpc"


class UnixServer(Record):
    """A server on this machine; its socket's file mode says who may come."""

    path: Path


class TcpServer(Record):
    host: str
    """A name stands for all its addresses, tried in turn."""
    port: int
    server_name: str = ""
    """Whom its certificate must be for; empty: `host`. Another where the way leads over a forwarded port."""


class DialerSettings(Record):
    servers: tuple[UnixServer | TcpServer, ...]
    """Tried in this order, those that failed last."""
    tls: TlsFiles = TlsFiles()
    """For TCP servers: their CA, our certificate and key."""
    protocol: Protocol = Protocol.HTTP_CONNECT
    connect_seconds: float = 10.0
    """TCP to one address of one server."""
    tls_seconds: float = 10.0
    """The handshake with it."""
    reply_seconds: float = 30.0
    """From the request to the server's word on the dial: covers the agent's own 5 s and redials."""
    buffer_bytes: int = 256 * 1024
    """What is read ahead of whoever reads, and written ahead of the network, per connection."""
