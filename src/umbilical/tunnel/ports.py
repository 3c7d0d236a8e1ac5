"""The two listening sockets of a server, for agents and for clients, and the file of a Unix socket."""

import os
import socket
from typing import Final

from umbilical.tunnel.listening import listen_tcp, listen_unix
from umbilical.tunnel.outbound import keep_alive
from umbilical.tunnel.settings import ServerSettings, TcpFrontend, UnixFrontend


class ServerPorts:
    def __init__(self, settings: ServerSettings, passed: socket.socket | None = None) -> None:
        """Open both, or none. `passed` is the socket for clients, if the service manager opened it.

        Raises StartupError.
        """
        self._frontend: Final = settings.frontend
        self.agents: Final = listen_tcp(settings.agent_listen, "agents")
        try:
            self.clients: Final = passed if passed is not None else _listen_for_clients(settings)
        except BaseException:
            self.agents.close()
            raise
        self._socket_file = _identity(settings.frontend) if passed is None else None
        """Device and inode of our own socket file, as long as we have one."""

    def remove_socket_file(self) -> None:
        """Only our own, and while it is open: a successor may have replaced it, or gets its inode once it is closed."""
        frontend, ours = self._frontend, self._socket_file
        self._socket_file = None
        if isinstance(frontend, UnixFrontend) and ours is not None and _identity(frontend) == ours:
            _unlink(str(frontend.path))


def _listen_for_clients(settings: ServerSettings) -> socket.socket:
    frontend = settings.frontend
    if isinstance(frontend, UnixFrontend):
        return listen_unix(frontend)
    clients = listen_tcp(frontend.address, "clients")
    # Accepted connections inherit these options.
    clients.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(clients, settings.limits.tcp_keepalive_seconds)
    return clients


def _identity(frontend: UnixFrontend | TcpFrontend) -> tuple[int, int] | None:
    if not isinstance(frontend, UnixFrontend):
        return None
    try:
        found = os.lstat(frontend.path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
