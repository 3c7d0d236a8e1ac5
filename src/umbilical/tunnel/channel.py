"""One non-blocking socket, plain or TLS: receive into given memory, send a slice.

Edge-triggered: `readable` stays true until the socket was seen empty. TLS runs over two memory buffers (MemoryBIO):
one receive and one send per turn instead of one per 16 KiB record.
"""

import socket
import ssl
import struct
from collections.abc import Callable
from typing import Final, cast

from umbilical.tunnel.loop import BOTH_ENDED, HANGUP, IN, OUT, Handler, Loop
from umbilical.tunnel.tls import tls_name

END: Final = 0
"""The peer sends no more."""
AGAIN: Final = -1
"""No bytes now."""
LOST: Final = -2
"""The connection broke; the reason is in `Channel.error`."""

_CIPHER_BYTES: Final = 256 * 1024
_cipher: Final = bytearray(_CIPHER_BYTES)
_cipher_view: Final = memoryview(_cipher)
"""Ciphertext on its way into a BIO. One is enough: one thread reads one socket at a time."""
SEND_BUFFER_BYTES: Final = 1024 * 1024
"""For a client's Unix socket, set when it was full: a download then needs fewer turns (measured: 700 to 911 MB/s). The
kernel limits it to net.core.wmem_max."""
_LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""struct linger: on, for zero seconds."""
_PLAIN_AT_ONCE: Final = 256 * 1024
"""How much is encrypted ahead of the socket at most."""


class ChannelOwner(Handler):
    """What a channel reports to."""

    def on_open(self) -> None:
        """The TLS handshake is done."""

    def on_readable(self) -> None:
        """Bytes, or the peer's end, can be read."""

    def on_writable(self) -> None:
        """A send can go on after it came back short."""

    def on_lost(self, reason: str) -> None:
        """The handshake failed, or a handler crashed; the channel is closed."""

    def on_crash(self, error: Exception) -> None:
        self.on_lost(f"internal error: {error!r}")


_no_owner: Final = ChannelOwner()


class HandshakeLimit(Handler):
    """Who owns the TLS handshakes of a listener; this one sets no limit."""

    def defers(self, channel: "TlsChannel") -> bool:
        """Whether the next step waits for a later turn; its `go_on` is called then."""
        return False

    def add(self, channel: "TlsChannel") -> None:
        """Its peer is not admitted, or not any more."""

    def admit(self, channel: "TlsChannel") -> None:
        """Its peer made a valid call."""

    def pause_host(self, channel: "TlsChannel") -> None:
        """Its peer sent a flood: further handshakes of that host wait for a moment."""

    def discard(self, channel: "TlsChannel") -> None:
        """It was closed."""


_no_limit: Final = HandshakeLimit()


class Channel(Handler):
    """A plain socket. `TlsChannel` has the same methods."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.loop: Final = loop
        self.sock: Final = sock
        self.descriptor: Final = sock.fileno()
        self.owner = _no_owner
        self.is_plain = True
        self.readable = False
        self.hung_up = False
        """The peer has ended its side or closed: read to the end now, since no further event comes."""
        self.is_gone = False
        """The peer does not receive either. A TCP peer that closed shows this only when something is sent to it."""
        self.closed = False
        self.error = ""
        self._asks_room = False
        self._watches_writable = False
        self._sending_ended = False

    def start(self, owner: ChannelOwner) -> None:
        self.owner = owner
        self.loop.add(self.descriptor, self, writable=False)

    def pause_host(self) -> None:
        """The peer sent a flood: its next connection has to wait for a moment, where that is possible."""

    def adopt(self, owner: ChannelOwner) -> None:
        """Like `start`, for a descriptor that the loop watches already, for writing too."""
        self.owner = owner
        self._watches_writable = True
        self.loop.replace(self.descriptor, self)

    def peer(self) -> str:
        try:
            name = self.sock.getpeername()
        except OSError:
            return "unknown"
        if not isinstance(name, tuple):
            return "unix"
        host = str(name[0]).removeprefix("::ffff:")  # IPv4, to a listener for both
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"

    def on_events(self, mask: int) -> None:
        if mask == IN:
            self.readable = True
            self.owner.on_readable()
            return
        if mask & HANGUP:
            self.hung_up = True
            self.readable = True
            if mask & BOTH_ENDED:
                self.is_gone = True
        elif mask & IN:
            self.readable = True
        if self.readable:
            self.owner.on_readable()
        if mask & (OUT | HANGUP) and self._asks_room and not self.closed:
            self._asks_room = False
            self.owner.on_writable()

    def on_crash(self, error: Exception) -> None:
        owner = self.owner
        self.reset()  # bytes may be missing: the peer must not take it for an orderly end
        owner.on_crash(error)

    def fail(self, reason: str) -> None:
        owner = self.owner
        self.close()
        owner.on_lost(reason)

    def ask_room(self) -> None:
        """Call the owner's `on_writable` when sending can go on."""
        self._asks_room = True
        if not self._watches_writable and not self.closed:
            self._watches_writable = True
            self.loop.watch_writable(self.descriptor)
            if self.sock.family == socket.AF_UNIX:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def receive_into(self, view: memoryview) -> int:
        """A count, END, AGAIN or LOST."""
        try:
            count = self.sock.recv_into(view)
        except BlockingIOError:
            self.readable = False
            return AGAIN
        except OSError as error:
            return self._lost(error)
        if count < len(view) and not self.hung_up:
            self.readable = False
        return count

    def send(self, view: memoryview | bytes | bytearray) -> int:
        """How many bytes were sent, perhaps 0; or LOST."""
        try:
            return self.sock.send(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            return self._lost(error)

    def add(self, view: memoryview) -> int:
        """Like `send`, but bytes may wait for `push`, so that small pieces are sent together."""
        return self.send(view)

    def has_unsent(self) -> bool:
        """Bytes that `send` accepted have not reached the socket yet."""
        return False

    def push(self) -> bool:
        """Send accepted bytes to the socket; False when it broke."""
        return True

    def _lost(self, error: OSError) -> int:
        self.readable = False
        self.error = error.strerror or str(error)
        return LOST

    def end_sending(self) -> None:
        """Signal the peer that no more bytes follow."""
        if self._sending_ended:
            return
        self._sending_ended = True
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone already

    def reset(self) -> None:
        """Close with a reset, which the peer cannot mistake for an orderly end."""
        if not self.closed:
            self.error = self.error or "reset"
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            except OSError:
                pass  # it is gone already
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.readable = False
            self.owner = _no_owner  # breaks the reference cycle: both are freed at once
            self.loop.forget(self.descriptor)
            self.sock.close()


class TlsChannel(Channel):
    def __init__(self, loop: Loop, sock: socket.socket, context: ssl.SSLContext, server_name: str | None) -> None:
        super().__init__(loop, sock)
        self.is_plain = False
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        name = None if server_name is None else tls_name(server_name)
        self.tls: Final = context.wrap_bio(
            self._incoming, self._outgoing, server_side=name is None, server_hostname=name
        )
        # Given a buffer, SSLObject.read returns a count; its published type knows only the other form.
        self._read: Final = cast(Callable[[int, memoryview], int], self.tls.read)
        self.handshakes = _no_limit
        self._peer = ""
        self._shaking_hands = True
        self._socket_readable = False
        self._ending = False
        self._left = bytearray()
        """Decrypted when our side ended, not read by the owner yet."""
        self._unsent = memoryview(b"")

    def start(self, owner: ChannelOwner) -> None:
        super().start(owner)
        self._shake_hands()

    def on_events(self, mask: int) -> None:
        if mask & (IN | HANGUP):
            self._socket_readable = True
        if self._shaking_hands:
            if mask & HANGUP:
                self.hung_up = True
            # An event for writing alone is not progress of the peer, and costs nothing.
            if not self._socket_readable or not self.handshakes.defers(self):
                self._shake_hands()
            return
        if mask & OUT and self._unsent:
            if not self._push():
                self.readable = True  # the owner learns of the loss by reading
            elif self._ending:
                self.end_sending()
        super().on_events(mask)

    def peer(self) -> str:
        if not self._peer:
            self._peer = super().peer()  # kept: the end of a connection is reported after it was closed
        return self._peer

    def pause_host(self) -> None:
        self.handshakes.pause_host(self)

    def go_on(self) -> None:
        """Take the step of the handshake that was deferred."""
        if self.closed or not self._shaking_hands:
            return
        try:
            self._shake_hands()
        except Exception as error:
            self.on_crash(error)

    def _shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if not self._push() or not self._fill():
                    if self.error:
                        self.fail(self.error)
                    elif self._unsent:
                        self.ask_room()
                    return
            except (ssl.SSLError, ssl.CertificateError) as error:
                self._push()  # the alert with the reason, for the peer
                self.fail(tls_reason(error))
                return
        self._shaking_hands = False
        if not self._push():
            self.fail(self.error)
            return
        self.readable = True
        self.owner.on_open()
        if self.readable and not self.closed:
            self.owner.on_readable()

    def is_open(self) -> bool:
        return not self._shaking_hands

    def _fill(self) -> bool:
        """One receive from the socket into the incoming BIO; False when nothing came."""
        if not self._socket_readable:
            return False
        try:
            count = self.sock.recv_into(_cipher_view)
        except BlockingIOError:
            self._socket_readable = False
            return False
        except OSError as error:
            self._socket_readable = False
            self._lost(error)
            return False
        if count == 0:
            self._socket_readable = False
            self._incoming.write_eof()
            if self._shaking_hands:
                self.error = "connection closed during the TLS handshake"
            return not self._shaking_hands
        if count < _CIPHER_BYTES and not self.hung_up:
            self._socket_readable = False
        self._incoming.write(_cipher_view[:count])
        return True

    def receive_into(self, view: memoryview) -> int:
        if self._left:
            return self._take_left(view)
        total = 0
        size = len(view)
        filled = False
        while total < size:
            try:
                count = self._read(size - total, view[total:])
            except ssl.SSLWantReadError:
                if filled or not self._fill():
                    break
                filled = True
                continue
            except ssl.SSLError as error:
                return self._read_failed(error, total)
            if count == 0:
                return total or END
            total += count
        if self._outgoing.pending:
            self._push()  # alerts, key updates
        if total:
            self.readable = total == size or self._socket_readable or bool(self.error)
            return total
        self.readable = False
        return LOST if self.error else AGAIN

    def _take_left(self, view: memoryview) -> int:
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        del self._left[:count]
        self.readable = True
        return count

    def _read_failed(self, error: ssl.SSLError, total: int) -> int:
        if total:
            return total  # the same error comes back with the next read
        if isinstance(error, ssl.SSLZeroReturnError):
            return END
        self._push()
        self.readable = False
        # A missing close_notify is truncation, not an end.
        self.error = tls_reason(error)
        return LOST

    def send(self, view: memoryview | bytes | bytearray) -> int:
        taken = self.add(memoryview(view))
        return taken if taken <= 0 or self._push() else LOST

    def add(self, view: memoryview) -> int:
        if self._unsent and (not self._push() or self._unsent):
            return LOST if self.error else 0
        try:
            taken = self.tls.write(view[:_PLAIN_AT_ONCE])
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            self.error = tls_reason(error)
            return LOST
        if self._outgoing.pending >= _PLAIN_AT_ONCE and not self._push():
            return LOST
        return taken

    def has_unsent(self) -> bool:
        return len(self._unsent) > 0

    def push(self) -> bool:
        return self._push()

    def _push(self) -> bool:
        """Send what the outgoing BIO holds; False when the socket broke."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self.sock.send(self._unsent)
            except BlockingIOError:
                return True
            except OSError as error:
                self._lost(error)
                return False
            if sent < len(self._unsent):
                self._unsent = self._unsent[sent:]
                return True
            self._unsent = memoryview(b"")

    def end_sending(self) -> None:
        if not self._shaking_hands:
            if not self._ending:
                self._ending = True
                self._empty_incoming()
                try:
                    self.tls.unwrap()
                except (ssl.SSLError, OSError):
                    pass  # it wants the peer's close_notify, which we do not wait for
            if self._push() and self._unsent:
                self.ask_room()  # the end must not overtake what the socket has no room for
                return
        super().end_sending()

    def _empty_incoming(self) -> None:
        """SSL_shutdown treats an unread record as a violation: it drops the record and fails the connection."""
        try:
            while octets := self.tls.read(_CIPHER_BYTES):
                self._left += octets
        except ssl.SSLError:
            pass  # nothing is left, or what comes next is an end or an error: the next read meets it again

    def close(self) -> None:
        if not self.closed and not self.error and not self._shaking_hands:
            self.end_sending()
        self.handshakes.discard(self)
        self.handshakes = _no_limit
        super().close()


def is_truncation(error: Exception) -> bool:
    """The peer went without close_notify; up to Python 3.11.3 that has no class of its own."""
    return isinstance(error, ssl.SSLEOFError) or getattr(error, "reason", "") == "UNEXPECTED_EOF_WHILE_READING"


def tls_reason(error: Exception) -> str:
    """The cause without OpenSSL's source positions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    if is_truncation(error):
        return "TLS: connection ended without close_notify"
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and reason:
        return "TLS: " + reason.replace("_", " ").lower()
    return f"TLS: {error}"
