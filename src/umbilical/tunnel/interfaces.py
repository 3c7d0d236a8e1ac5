"""What the tunnel asks of rooms that it does not import: small Protocols, fulfilled by shape, introduced by `cli`."""

from collections.abc import Sequence
from typing import Protocol


class AuthenticationRefused(Exception):
    """The agent may not connect; the text goes to it as the gRPC status message."""


class AgentAuthenticator(Protocol):
    async def authenticate(self, token: str) -> None:
        """Return for a good bearer token; raise `AuthenticationRefused` otherwise. Bounded in time."""


class ServerCounter(Protocol):
    def server_count(self) -> int | None:
        """How many servers there are as far as is known now; None when nothing is known yet."""

    def published_addresses(self) -> Sequence[tuple[str, int]]:
        """Hosts and ports at which servers say that agents reach them, each its own."""

    async def run(self) -> None:
        """Keep counting until cancelled."""


class LeasePublisher(Protocol):
    async def run(self) -> None:
        """Publish and renew until cancelled."""

    async def withdraw(self) -> None:
        """Take the lease away; bounded in time."""
