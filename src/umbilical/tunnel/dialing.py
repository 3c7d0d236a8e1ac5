"""The agent's dials: non-blocking connects with a time limit, a limit on concurrent dials, and Go's happy eyeballs.

Addresses are connected to in the data plane; only names need the resolver.
"""

import errno
import socket
from collections import deque
from typing import Final, Protocol

from umbilical.konnectivity import dial_failure
from umbilical.tunnel import faults
from umbilical.tunnel.descriptors import OUT_OF_FILES, FileWatch
from umbilical.tunnel.destinations import DestinationGate
from umbilical.tunnel.loop import HANGUP, Deadlines, Handler, Loop
from umbilical.tunnel.outbound import KEEPALIVE_SECONDS, keep_alive

KEEPALIVE_DELAY_SECONDS: Final = 1.0
"""Most tunnels of an API server are shorter."""
FALLBACK_SECONDS: Final = 0.3
"""Go's dialer gives the first address family this head start (RFC 6555)."""

Address = tuple[socket.AddressFamily, str, int]


class Resolver(Protocol):
    def resolve(self, dial: "Dial", host: str, port: int) -> None:
        """Look the name up, then call `dial.resolved` or `dial.unresolved`, in the loop's thread."""


class DialOwner:
    """What a dial reports to."""

    def dial_succeeded(self, sock: socket.socket, mask: int) -> None:
        """Connected; the loop watches the socket already. `mask` is the event that reported it."""

    def dial_failed(self, text: str) -> None:
        """`text` is in Go's words."""


class EndpointDialer:
    """All dials of one agent: at most `limit` under way, the others queue within their own time limit."""

    def __init__(
        self,
        loop: Loop,
        resolver: Resolver,
        timeout_seconds: float,
        limit: int,
        tcp_keepalive_seconds: float = KEEPALIVE_SECONDS,
        gate: DestinationGate | None = None,
    ) -> None:
        self.loop: Final = loop
        self.gate: Final = gate
        self.keepalive: Final = LateKeepalive(loop, tcp_keepalive_seconds)
        self.files: Final = FileWatch(loop)
        self.resolver: Final = resolver
        self._deadlines: Final = Deadlines(loop, timeout_seconds)
        self._limit: Final = limit
        self._active: Final[set[Dial]] = set()
        self._queue: Final[deque[Dial]] = deque()
        self._starting = False

    def dial(self, owner: DialOwner, network: str, address: str) -> "Dial":
        dial = Dial(self, owner, network, address)
        self._deadlines.add(dial)
        if len(self._active) < self._limit:
            self._start(dial)
        else:
            self._queue.append(dial)
        return dial

    def _start(self, dial: "Dial") -> None:
        self._active.add(dial)
        try:
            dial.start()
        except Exception as error:
            self.loop.crash(dial, faults.COMMAND, error)

    def finished(self, dial: "Dial") -> None:
        self._deadlines.discard(dial)
        if dial not in self._active:
            return  # it is still queued, and finished dials in the queue are skipped
        self._active.discard(dial)
        if self._queue and not self._starting:
            self._start_queued()

    def _start_queued(self) -> None:
        """A dial may fail as it starts, which calls this again: the flag prevents deep recursion."""
        self._starting = True
        try:
            while self._queue and len(self._active) < self._limit:
                following = self._queue.popleft()
                if not following.is_over():
                    self._start(following)
        finally:
            self._starting = False

    def under_way(self) -> int:
        return len(self._active)

    def queued(self) -> int:
        return len(self._queue)


class LateKeepalive(Handler):
    """Sets TCP keepalive on sockets that are open after a second or two.

    Short tunnels do not need it, and its four system calls are a twentieth of the agent's work for a dial.
    """

    def __init__(self, loop: Loop, interval_seconds: float) -> None:
        self._loop: Final = loop
        self._interval_seconds: Final = interval_seconds
        self._new: list[socket.socket] = []
        self._older: list[socket.socket] = []
        self._armed = False

    def add(self, sock: socket.socket) -> None:
        self._new.append(sock)
        if not self._armed:
            self._armed = True
            self._loop.after(KEEPALIVE_DELAY_SECONDS, self)

    def on_timer(self) -> None:
        due, self._older, self._new = self._older, self._new, []
        self._armed = bool(self._older)
        if self._armed:
            self._loop.after(KEEPALIVE_DELAY_SECONDS, self)
        for sock in due:
            if sock.fileno() >= 0:
                keep_alive(sock, self._interval_seconds)


class Dial(Handler):
    def __init__(self, dialer: EndpointDialer, owner: DialOwner, network: str, address: str) -> None:
        self._dialer: Final = dialer
        self.loop: Final = dialer.loop
        self._owner: Final = owner
        self.network: Final = network
        self._address: Final = address
        self._candidates: list[Address] = []
        self._attempts: Final[list[Attempt]] = []
        self._looks_up = ""
        """The name, while its lookup is under way."""
        self._first_error = ""
        self._over = False

    def is_over(self) -> bool:
        return self._over

    def start(self) -> None:
        try:
            host, port = dial_failure.split_host_port(self._address)
        except dial_failure.BadAddress as error:
            self._fail(dial_failure.bad_address_text(self.network, error))
            return
        if refusal := self._refusal_of_name(host, port):
            self._fail(dial_failure.denied_text(self.network, self._address, refusal))
            return
        literal = _literal(host or ("::1" if self.network == "tcp6" else "127.0.0.1"), port)
        if literal is None:
            self._looks_up = host
            self._dialer.resolver.resolve(self, host, port)
        else:
            self.resolved([literal])

    def resolved(self, addresses: list[Address]) -> None:
        if self._over:
            return
        self._looks_up = ""
        wanted = [address for address in addresses if _fits(self.network, address[0])]
        if not wanted:
            host = dial_failure.split_host_port(self._address)[0]
            self._fail(dial_failure.no_suitable_address_text(self.network, host))
            return
        allowed, refusal = self._judged(wanted)
        if not allowed:
            self._fail(dial_failure.denied_text(self.network, self._address, refusal))
            return
        self._candidates = _interleaved(allowed)
        self._try_next()
        self._arm_fallback()

    def _refusal_of_name(self, host: str, port: int) -> str:
        gate = self._dialer.gate
        return "" if gate is None or gate.is_open(self.loop.now) else gate.refusal_of_name(host, port)

    def _judged(self, addresses: list[Address]) -> tuple[list[Address], str]:
        """The addresses that may be connected to, and why the last other one may not."""
        gate = self._dialer.gate
        if gate is None or gate.is_open(self.loop.now):
            return addresses, ""
        host = dial_failure.split_host_port(self._address)[0]
        allowed: list[Address] = []
        refusal = ""
        for address in addresses:
            found = gate.refusal(host, address[0], address[1], address[2])
            if found:
                refusal = found
            else:
                allowed.append(address)
        return allowed, refusal

    def unresolved(self, text: str) -> None:
        self._fail(text)

    def cancel(self) -> None:
        """Stop without an answer."""
        if not self._over:
            self._finish(None)

    def _try_next(self) -> None:
        while self._candidates and not self._over:
            family, host, port = self._candidates.pop(0)
            attempt = Attempt(self, self._dialer, family, host, port)
            error = attempt.start()
            if not error:
                self._attempts.append(attempt)
                return
            self._note(attempt, error)
        if not self._attempts and not self._over:
            self._fail(self._first_error)

    def attempt_failed(self, attempt: "Attempt", error: int) -> None:
        self._attempts.remove(attempt)
        self._note(attempt, error)
        self._try_next()

    def _note(self, attempt: "Attempt", error: int) -> None:
        if not self._first_error:
            name = errno.errorcode.get(error, str(error))
            self._first_error = dial_failure.dial_error_text(self.network, attempt.address, name)

    def attempt_succeeded(self, attempt: "Attempt", mask: int) -> None:
        self._finish(attempt)
        self._owner.dial_succeeded(attempt.sock, mask)

    def fall_back(self) -> None:
        """The head start of the addresses tried so far is over: try the next one too."""
        if self._candidates and not self._over:
            self._try_next()
            self._arm_fallback()

    def _arm_fallback(self) -> None:
        if self._candidates and not self._over:
            self.loop.after(FALLBACK_SECONDS, _Fallback(self))

    def on_timer(self) -> None:
        """The time limit of the whole dial."""
        self._fail(self._timeout_text())

    def _timeout_text(self) -> str:
        if self._attempts:
            return dial_failure.dial_timeout_text(self.network, self._attempts[0].address)
        if self._first_error:
            return self._first_error
        if self._looks_up:
            return dial_failure.lookup_timeout_text(self.network, self._looks_up)
        return dial_failure.dial_timeout_text(self.network, self._address)

    def on_crash(self, error: Exception) -> None:
        if not self._over:
            self._fail(f"dial {self.network} {self._address}: internal error: {error!r}")

    def _fail(self, text: str) -> None:
        if not self._over:
            self._finish(None)
            self._owner.dial_failed(text)

    def _finish(self, winner: "Attempt | None") -> None:
        self._over = True
        self._candidates.clear()
        for attempt in self._attempts:
            if attempt is not winner:
                attempt.abandon()
        self._attempts.clear()
        self._dialer.finished(self)


class _Fallback(Handler):
    def __init__(self, dial: Dial) -> None:
        self._dial: Final = dial

    def on_timer(self) -> None:
        self._dial.fall_back()

    def on_crash(self, error: Exception) -> None:
        self._dial.on_crash(error)


class Attempt(Handler):
    """One connect to one address."""

    def __init__(self, dial: Dial, dialer: EndpointDialer, family: socket.AddressFamily, host: str, port: int) -> None:
        self._dial: Final = dial
        self._dialer: Final = dialer
        self._loop: Final = dial.loop
        self._family: Final = family
        self._target: Final = (host, port)
        self.address: Final = dial_failure.join_host_port(host, port)
        self.sock: socket.socket

    def start(self) -> int:
        """0 when under way, else an errno."""
        try:
            self.sock = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self._dialer.files.refused("dials fail")
            return error.errno or errno.EIO
        if self.sock.fileno() >= self._dialer.files.shares.for_anything:
            self.sock.close()
            self._dialer.files.refused("dials fail")
            return errno.EMFILE
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._dialer.keepalive.add(self.sock)
        code = self.sock.connect_ex(self._target)
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            return code
        self._loop.add(self.sock.fileno(), self, writable=True)
        return 0

    def on_events(self, mask: int) -> None:
        if mask & HANGUP:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self.abandon()
                self._dial.attempt_failed(self, code)
                return
        self._dial.attempt_succeeded(self, mask)

    def on_crash(self, error: Exception) -> None:
        self.abandon()
        self._dial.on_crash(error)

    def abandon(self) -> None:
        self._loop.forget(self.sock.fileno())
        self.sock.close()


def _literal(host: str, port: int) -> Address | None:
    if host[:1].isdigit() and ":" not in host:
        try:
            socket.inet_pton(socket.AF_INET, host)
        except OSError:
            return None
        return socket.AF_INET, host, port
    if "%" in host:
        return None  # a zone, which getaddrinfo resolves
    try:
        socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return None
    return socket.AF_INET6, host, port


def _fits(network: str, family: socket.AddressFamily) -> bool:
    if network == "tcp4":
        return family == socket.AF_INET
    return network != "tcp6" or family == socket.AF_INET6


def _interleaved(addresses: list[Address]) -> list[Address]:
    """Alternate between the address families, so that a working one is found soon."""
    if len(addresses) == 1:
        return addresses
    first = [address for address in addresses if address[0] == addresses[0][0]]
    second = [address for address in addresses if address[0] != addresses[0][0]]
    mixed: list[Address] = []
    for index in range(max(len(first), len(second))):
        mixed += first[index : index + 1] + second[index : index + 1]
    return mixed
