"""The two listening sockets of a server, for agents and for clients, and the file of a Unix socket."""

import socket
from typing import Final

from umbilical.tunnel.listening import SocketFile, listen_tcp, listen_unix
from umbilical.tunnel.outbound import keep_alive
from umbilical.tunnel.settings import ServerSettings, UnixFrontend


class ServerPorts:
    def __init__(self, settings: ServerSettings, passed: socket.socket | None = None) -> None:
        """Open both, or none. `passed` is the socket for clients, if the service manager opened it.

        Raises StartupError.
        """
        self.agents: Final = listen_tcp(settings.agent_listen, "agents")
        try:
            self.clients: Final = passed if passed is not None else _listen_for_clients(settings)
        except BaseException:
            self.agents.close()
            raise
        self._socket_file: SocketFile | None = None
        if passed is None and isinstance(settings.frontend, UnixFrontend):
            self._socket_file = SocketFile(settings.frontend.path)

    def remove_socket_file(self) -> None:
        """Only our own."""
        if self._socket_file is not None:
            self._socket_file.remove()


def _listen_for_clients(settings: ServerSettings) -> socket.socket:
    frontend = settings.frontend
    if isinstance(frontend, UnixFrontend):
        return listen_unix(frontend)
    clients = listen_tcp(frontend.address, "clients")
    # Accepted connections inherit these options.
    clients.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(clients, settings.limits.tcp_keepalive_seconds)
    return clients
