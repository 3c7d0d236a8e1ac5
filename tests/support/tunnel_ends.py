"""Ends of a tunnel under test, each with one part of the data path: a backlog, an inlet, an outlet."""

import socket

from tests.support.data_plane import Reader
from tests.support.transports import Line

from umbilical.tunnel.channel import AGAIN, Channel, ChannelOwner
from umbilical.tunnel.loop import Handler, Loop
from umbilical.tunnel.payload import MORE, Inlet, Outlet


class End(Handler):
    """An end of a tunnel that writes down what its backlog wants of it."""

    def __init__(self, can_pause: bool) -> None:
        self.can_pause = can_pause
        self.lines: list[str] = []

    def ask_pause(self) -> bool:
        self.lines.append("pause")
        return self.can_pause

    def ask_resume(self) -> None:
        self.lines.append("resume")

    def on_stalled(self, waiting: int) -> None:
        self.lines.append(f"stalled at {waiting}")

    def on_stuck(self) -> None:
        self.lines.append("stuck")


class Mouth(ChannelOwner):
    """Owns a socket and its inlet; goes on whenever it may."""

    def __init__(self, plane: Loop, line: Line, sock: socket.socket, connection_id: int) -> None:
        self.counts = [0] * 8
        self.rooms = 0
        self.ends: list[int] = []
        self.then_write = b""
        """What it writes from memory, instead of reading, when it has room."""
        stream = next(iter(line.connection.streams.by_id.values()))
        self.inlet = Inlet(self, line, stream, connection_id, self.counts)
        self.channel = Channel(plane, sock)
        self.channel.start(self)

    def on_readable(self) -> None:
        if not self.inlet.waiting:
            count = self.inlet.draw(self.channel)
            if count == MORE:
                self.channel.loop.again(self)
            elif count != AGAIN:
                self.ends.append(count)
                self.channel.close()

    def on_again(self) -> None:
        self.on_readable()

    def on_room(self, inlet: Inlet) -> None:
        self.rooms += 1
        if self.then_write:
            inlet.write(memoryview(self.then_write))
        else:
            self.on_readable()


class Tap(Reader):
    """Sends by an outlet, as the tunnel ends do."""

    def __init__(self) -> None:
        super().__init__()
        self.outlet: Outlet

    def open(self, channel: Channel) -> Outlet:
        self.own(channel)
        self.outlet = Outlet(channel)
        return self.outlet

    def on_writable(self) -> None:
        self.writable += 1
        self.outlet.flush()
