"""What epoll does, for simulated sockets: edges for connections, levels for listeners."""

import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.network import Network

_ALWAYS: Final = select.EPOLLERR | select.EPOLLHUP
"""Reported whether asked for or not."""
SHUFFLED_SHARE: Final = 0.3
"""Of the polls: the kernel gives no promise on the order of descriptors."""


class Poller:
    def __init__(self, network: "Network") -> None:
        self._network: Final = network
        self._interest: Final[dict[int, int]] = {}
        self._edges: Final[dict[int, None]] = {}
        """In the order of their first event."""
        self._levels: Final[set[int]] = set()

    def register(self, descriptor: int, mask: int) -> None:
        if descriptor in self._interest:
            raise FileExistsError(descriptor)
        self._network.sockets[descriptor].poller = self
        self.modify(descriptor, mask, is_new=True)

    def modify(self, descriptor: int, mask: int, is_new: bool = False) -> None:
        if descriptor not in self._interest and not is_new:
            raise FileNotFoundError(descriptor)
        self._interest[descriptor] = mask
        if not mask & select.EPOLLET:
            self._levels.add(descriptor)
        elif self._network.sockets[descriptor].mask() & (mask | _ALWAYS):
            self._edges[descriptor] = None

    def unregister(self, descriptor: int) -> None:
        if descriptor not in self._interest:
            raise FileNotFoundError(descriptor)
        self.forget(descriptor)

    def forget(self, descriptor: int) -> None:
        """The descriptor was closed."""
        self._interest.pop(descriptor, None)
        self._edges.pop(descriptor, None)
        self._levels.discard(descriptor)

    def edge(self, descriptor: int, mask: int) -> None:
        if mask & (self._interest.get(descriptor, 0) | _ALWAYS):
            self._edges[descriptor] = None

    def is_ready(self) -> bool:
        if self._edges:
            return True
        return any(self._network.sockets[descriptor].mask() for descriptor in self._levels)

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        sockets = self._network.sockets
        chosen = list(self._edges)[:most]
        ready: list[tuple[int, int]] = []
        for descriptor in chosen:
            del self._edges[descriptor]
            mask = sockets[descriptor].mask() & (self._interest[descriptor] | _ALWAYS)
            if mask:
                ready.append((descriptor, mask))
        for descriptor in sorted(self._levels):
            mask = sockets[descriptor].mask() & self._interest[descriptor]
            if mask:
                ready.append((descriptor, mask))
        if len(ready) > 1 and self._network.random.random() < SHUFFLED_SHARE:
            self._network.random.shuffle(ready)
        return ready

    def watched(self) -> int:
        return len(self._interest)

    def close(self) -> None:
        self._interest.clear()
        self._edges.clear()
        self._levels.clear()
