"""urllib3 over the tunnel: a PoolManager whose connections come from a BlockingDialer.

TLS to the endpoint is urllib3's own, verified by the endpoint's name; the tunnel carries ciphertext only.
"""

import socket
from typing import Any

from umbilical.dialer.blocking import BlockingDialer
from umbilical.dialer.failure import DialFailed, DialReason

try:
    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("umbilical.dialer.urllib3_pools needs urllib3: pip install 'urllib3>=2'") from error


def tunnel_pool_manager(dialer: BlockingDialer, **options: Any) -> urllib3.PoolManager:
    """`options` as urllib3.PoolManager takes them. Closing it closes its connections, not the dialer."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _open(dialer, self)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _open(dialer, self)

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    manager = urllib3.PoolManager(**options)
    manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return manager


def _open(dialer: BlockingDialer, connection: HTTPConnection) -> socket.socket:
    timeout = connection.timeout if isinstance(connection.timeout, int | float) else None
    host, port = connection.host.strip("[]"), connection.port or connection.default_port
    try:
        return dialer.open(host, port, timeout)
    except DialFailed as failure:
        if failure.reason is DialReason.TIMEOUT:
            raise ConnectTimeoutError(connection, failure.brief) from failure
        raise NewConnectionError(connection, failure.brief) from failure
    except TimeoutError as error:
        text = f"no connection to {host}:{port} through the tunnel within {timeout} s"
        raise ConnectTimeoutError(connection, text) from error
