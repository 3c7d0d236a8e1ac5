"""The options by which a command enters a test's own tunnel."""

from umbilical.dialer.settings import TcpServer
from umbilical.hosted.access import TunnelAccess


def entrance(access: TunnelAccess) -> list[str]:
    """Say --server, --ca, --cert and --key for a server on TCP."""
    server, tls = access.server, access.tls
    assert isinstance(server, TcpServer)
    return [
        *("--server", f"{server.host}:{server.port}"),
        *("--ca", str(tls.authority)),
        *("--cert", str(tls.certificate)),
        *("--key", str(tls.key)),
    ]
