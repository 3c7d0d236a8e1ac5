"""Protocols of what the tunnel needs from rooms that it does not import; `cli` passes the implementations."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol


class AuthenticationRefused(Exception):
    """The agent may not connect; the text goes to it as the gRPC status message."""


class AgentAuthenticator(Protocol):
    async def authenticate(self, token: str) -> None:
        """Return for a good bearer token; raise `AuthenticationRefused` otherwise. Bounded in time."""


class ServerCounter(Protocol):
    def server_count(self) -> int | None:
        """Number of servers; None until it is known."""

    def published_addresses(self) -> Sequence[tuple[str, int]]:
        """Hosts and ports that servers publish for agents."""

    def published_ids(self) -> Mapping[tuple[str, int], Collection[str]]:
        """The IDs of the servers that publish each address now; the workers of one server share one."""

    async def run(self) -> None:
        """Keep counting until cancelled."""


class Publisher(Protocol):
    async def run(self) -> None:
        """Publish and renew until cancelled."""

    async def withdraw(self) -> None:
        """Delete the lease; bounded in time."""

    def describe(self) -> Sequence[Mapping[str, object]]:
        """Each lease with `server`, `name`, `address`, `renewedAgoSeconds` and `error`, as in docs/status.md."""
        ...
