"""A channel with TLS over two memory buffers (MemoryBIO): one receive and one send per turn, not one per record."""

import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from umbilical.tunnel.channel import AGAIN, END, LOST, Channel, ChannelOwner
from umbilical.tunnel.loop import HANGUP, IN, OUT, READ_BYTES, Handler, Loop
from umbilical.tunnel.tls import tls_name, tls_reason

_PLAIN_AT_ONCE: Final = 256 * 1024
"""How much is encrypted ahead of the socket at most."""


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
        self.proved = ""
        """The name in the client's certificate, once it has asked for a tunnel."""
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

    def peer_certificate(self) -> bytes | None:
        return None if self._shaking_hands else self.tls.getpeercert(True)

    def identity(self) -> str:
        return self.proved

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
            count = self.sock.recv_into(self.loop.ciphertext)
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
        if count < READ_BYTES and not self.hung_up:
            self._socket_readable = False
        self._incoming.write(self.loop.ciphertext[:count])
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
            while octets := self.tls.read(READ_BYTES):
                self._left += octets
        except ssl.SSLError:
            pass  # nothing is left, or what comes next is an end or an error: the next read meets it again

    def close(self) -> None:
        if not self.closed and not self.error and not self._shaking_hands:
            self.end_sending()
        self.handshakes.discard(self)
        self.handshakes = _no_limit
        super().close()
