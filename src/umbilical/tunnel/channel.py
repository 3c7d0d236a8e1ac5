"""One non-blocking socket: receive into given memory, send a slice.

Edge-triggered: `readable` stays true until the socket was seen empty.
"""

import socket
import struct
from typing import Final

from umbilical.tunnel.loop import BOTH_ENDED, HANGUP, IN, OUT, Handler, Loop

END: Final = 0
"""The peer sends no more."""
AGAIN: Final = -1
"""No bytes now."""
LOST: Final = -2
"""The connection broke; the reason is in `Channel.error`."""

SEND_BUFFER_BYTES: Final = 1024 * 1024
"""For a client's Unix socket, set when it was full: a download then needs fewer turns (measured: 700 to 911 MB/s). The
kernel limits it to net.core.wmem_max."""
UNSENT_BYTES: Final = 128 * 1024
"""What may wait in the kernel, on a long way, behind what is under way: small requests wait behind it."""
NOTSENT_LOWAT: Final = 25
"""TCP_NOTSENT_LOWAT of Linux, which the socket module of Python 3.11 does not name."""
_CREDENTIALS: Final = struct.Struct("iII")
"""struct ucred: pid, uid, gid."""
_LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""struct linger: on, for zero seconds."""


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
        self._credentials = b""
        self._asks_room = False
        self._watches_writable = False
        self._sending_ended = False
        self._keeps_little = False

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

    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, verified; None without one."""
        return None

    def peer(self) -> str:
        try:
            name = self.sock.getpeername()
        except OSError:
            return "unknown"
        if not isinstance(name, tuple):
            return "unix"
        host = str(name[0]).removeprefix("::ffff:")  # IPv4, to a listener for both
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"

    def note_credentials(self) -> None:
        """Remember which process is at the other end of the Unix socket; read later, it may be gone."""
        try:
            self._credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            pass  # it is gone already

    def identity(self) -> str:
        """Who is at the other end: `uid=0 pid=4211`; empty if unknown."""
        if not self._credentials:
            return ""
        pid, uid, _ = _CREDENTIALS.unpack(self._credentials)
        return f"uid={uid} pid={pid}"

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

    def keep_little_unsent(self) -> None:
        """Let the kernel take no more from us than it can send soon."""
        if not self._keeps_little:
            self._keeps_little = True
            try:
                self.sock.setsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT, UNSENT_BYTES)
            except OSError:
                pass  # not TCP, or gone

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
