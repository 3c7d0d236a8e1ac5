"""An actor's end of a connection: a client, an endpoint or a stranger, without a loop of its own."""

from typing import Final, Protocol

from tests.simulation.sockets import SimSocket
from tests.simulation.tls import Records

READ_BYTES: Final = 32 * 1024


class WireOwner(Protocol):
    def received(self, octets: bytes) -> None:
        """Bytes have arrived."""

    def ended(self) -> None:
        """The peer sends no more."""

    def failed(self, reason: str) -> None:
        """The connection broke; the wire is closed."""


class Pace:
    """How fast an actor reads: so many bytes at a time, with a rest between."""

    def __init__(self, at_once: int = 0, rest_seconds: float = 0.0, first_rest_seconds: float = 0.0) -> None:
        self.at_once: Final = at_once
        self.rest_seconds: Final = rest_seconds
        self.first_rest_seconds: Final = first_rest_seconds


EAGER: Final = Pace()


class Wire:
    def __init__(self, sock: SimSocket, owner: WireOwner, pace: Pace = EAGER, tls: bool = False) -> None:
        self.sock: Final = sock
        self._network: Final = sock.network
        self._owner: Final = owner
        self._pace: Final = pace
        self._records: Final = Records() if tls else None
        self._unsent = bytearray()
        self._ends = False
        self._saw_end = False
        self._rests_until = self._network.now + pace.first_rest_seconds
        sock.on_edge = self._on_edge
        if tls:
            self._unsent += Records.greeting()
            self._flush()
        if pace.first_rest_seconds:
            self._network.at(self._rests_until, self._on_edge)

    @property
    def closed(self) -> bool:
        return self.sock.closed

    def unsent(self) -> int:
        return len(self._unsent)

    def write(self, octets: bytes) -> None:
        if not self.closed and not self._ends:
            self._unsent += Records.wrap(octets) if self._records is not None else octets
            self._flush()

    def end(self) -> None:
        """No more follows; what was written goes first."""
        self._ends = True
        self._flush()

    def close(self) -> None:
        self.sock.close()

    def _on_edge(self) -> None:
        self._flush()
        self._read()

    def _flush(self) -> None:
        while self._unsent and not self.closed:
            try:
                sent = self.sock.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                return  # the reason is met by the next read
            del self._unsent[:sent]
        if self._ends and not self.closed and not self._unsent:
            try:
                self.sock.shutdown(1)
            except OSError:
                pass

    def _read(self) -> None:
        while not self.closed and not self._saw_end and self._network.now >= self._rests_until:
            try:
                octets = self.sock.recv(self._pace.at_once or READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self.close()
                self._owner.failed(str(error.strerror))
                return
            if not octets:
                self._saw_end = True
                self._owner.ended()
                return
            if self._pace.rest_seconds:
                self._rests_until = self._network.now + self._pace.rest_seconds
                self._network.at(self._rests_until, self._on_edge)
            self._give(octets)

    def _give(self, octets: bytes) -> None:
        if self._records is None:
            self._owner.received(octets)
            return
        self._records.feed(octets)
        while plain := self._records.take(READ_BYTES):
            self._owner.received(plain)
