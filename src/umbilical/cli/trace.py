"""`umbilical trace`: follows dials and tunnels live, as a line each, from the events of servers and agents."""

import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from socket import SHUT_RDWR
from typing import Any, Final

import click

from umbilical.checks.report import printable
from umbilical.cli.admin_port import DEFAULT_PLACES, AdminPorts, Place, place_options, shown, unanswered
from umbilical.cli.findings import output_option
from umbilical.cli.options import duration
from umbilical.cli.status_text import size, span
from umbilical.cli.terminal import has_colour
from umbilical.codes import INTERRUPTED
from umbilical.fault import Fault
from umbilical.record import Record

PATH: Final = "/v1/events"
SILENCE_SECONDS: Final = 40.0
"""A process sends a comment every 15 s, so that this long without any is a loss."""
AGAIN_SECONDS: Final = 1.0
"""Until a stream that ended is asked for again."""
STOP_SECONDS: Final = 2.0
MOST_WAITING: Final = 10_000
"""Events that wait for a terminal that is stopped; then the streams wait, and the processes cut them."""
LARGEST_LINE: Final = 64 * 1024

OUTCOMES: Final = {"opened": "tunnel-opened", "closed": "tunnel-closed", "failed": "dial-failed"}
_ENDED: Final = "ended"
_WORDS: Final = {
    "tunnel-opened": "open",
    "tunnel-closed": "close",
    "dial-failed": "FAIL",
    "agent-connected": "agent",
    "agent-gone": "AGENT",
    "server-connected": "server",
    "server-gone": "SERVER",
}
_COLOURS: Final = {"FAIL": "31", "AGENT": "31", "SERVER": "31", "open": "32", "agent": "32", "server": "32"}

Event = dict[str, Any]


class TraceFilter(Record):
    """Which events are shown; patterns as in a shell."""

    endpoint: str = "*"
    agent: str = "*"
    client: str = "*"
    outcomes: tuple[str, ...] = ()
    slow_seconds: float = 0.0

    def shows(self, kind: str, event: Event) -> bool:
        if kind not in OUTCOMES.values():
            return kind in _WORDS and self == TraceFilter()  # peers that come and go, if nobody asks for certain dials
        if self.outcomes and kind not in [OUTCOMES[one] for one in self.outcomes]:
            return False
        if self.slow_seconds and (_dial_milliseconds(event) or 0.0) < self.slow_seconds * 1000:
            return False
        peer = event.get("agent") or event.get("relay") or event.get("server")
        pairs = ((self.endpoint, event.get("endpoint")), (self.agent, peer), (self.client, event.get("client")))
        return all(fnmatchcase(text or "", pattern) for pattern, text in pairs)


def _dial_milliseconds(event: Event) -> float | None:
    found: float | None = event.get("dialMilliseconds", event.get("milliseconds"))
    return found


@click.command()
@place_options
@click.option("--endpoint", default="*", help="Only dials of this HOST:PORT; * and ? as in a shell.")
@click.option("--agent", default="*", help="Only dials by this agent; on an agent's port, for this server.")
@click.option("--client", default="*", help="Only dials of this client, such as CN=kube-apiserver or 'uid=0 *'.")
@click.option("--outcome", "outcomes", type=click.Choice(list(OUTCOMES)), multiple=True, help="Only these; repeatable.")
@click.option("--slow", type=duration, default="0s", help="Only dials that took this long, opened or failed.")
@click.option("-c", "--count", type=click.IntRange(1), help="End after so many lines.")
@click.option("--for", "limit", type=duration, help="End after this time; default: at Ctrl-C.")
@output_option("text", "json")
def trace(
    places: tuple[Place, ...], count: int | None, limit: float | None, output: str, slow: float, **options: Any
) -> int:
    """Follow dials and tunnels of servers and agents live.

    A line for each dial that opens a tunnel or fails, with its client, agent and times, and for each tunnel that ends,
    with its bytes. Without --admin it follows the server or else the agent on this machine.
    """
    wanted = TraceFilter(options["endpoint"], options["agent"], options["client"], options["outcomes"], slow)
    ports = AdminPorts(options["ca"], options["token_file"])
    events: queue.Queue[tuple[Place, str, Event]] = queue.Queue(MOST_WAITING)
    streams = _opened(ports, places)
    for stream in streams:
        stream.start(events)
    printer = _Printer(output == "json", names_place=len(places) > 1)
    deadline = None if limit is None else time.monotonic() + limit
    try:
        while count is None or printer.lines < count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                place, kind, event = events.get(timeout=left)
            except queue.Empty:
                break
            if kind in (_ENDED, "cut") or wanted.shows(kind, event):
                printer.show(place, kind, event)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        for stream in streams:
            stream.stop()
    return 0


class EventStream:
    """The events of one process, read in a thread. It is asked for again when it ends."""

    def __init__(self, ports: AdminPorts, place: Place) -> None:
        """Raises Fault if nobody answers."""
        self.place: Final = place
        self._ports: Final = ports
        self._open = ports.get(place, PATH)
        self._stopped: Final = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, events: "queue.Queue[tuple[Place, str, Event]]") -> None:
        self._thread = threading.Thread(
            target=self._run, args=(events,), name=f"trace-{shown(self.place)}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        sock = self._open[0].sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self, events: "queue.Queue[tuple[Place, str, Event]]") -> None:
        while not self._stopped.is_set():
            try:
                for kind, event in self._read():
                    self._put(events, kind, event)
                why = "the stream ended"
            except Fault as fault:
                why = fault.why
            if not self._stopped.is_set():
                self._put(events, _ENDED, {"text": f"{why}; asking again"})
                self._ask_again()

    def _put(self, events: "queue.Queue[tuple[Place, str, Event]]", kind: str, event: Event) -> None:
        """Wait for room until the command ends."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                events.put((self.place, kind, event), timeout=STOP_SECONDS / 2)
                return

    def _ask_again(self) -> None:
        while not self._stopped.wait(AGAIN_SECONDS):
            with suppress(Fault):
                self._open = self._ports.get(self.place, PATH)
                return

    def _read(self) -> Iterator[tuple[str, Event]]:
        from http.client import HTTPException

        connection, response = self._open
        if connection.sock is not None:
            connection.sock.settimeout(SILENCE_SECONDS)
        try:
            yield from parsed(iter(lambda: response.readline(LARGEST_LINE), b""))
        except (OSError, ValueError, HTTPException) as error:
            raise unanswered(self.place, error) from None
        finally:
            connection.close()


def parsed(lines: Iterator[bytes]) -> Iterator[tuple[str, Event]]:
    """Server-sent events. Raises ValueError if the data of one is no JSON object."""
    kind = ""
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data" and kind:
            event = json.loads(value)
            if not isinstance(event, dict):
                raise ValueError(f"the data of {kind!r} is no object")
            yield kind, event
            kind = ""


def _opened(ports: AdminPorts, places: Sequence[Place]) -> list[EventStream]:
    """All places that are given; of the default ones the first that answers, since both see the same dials."""
    if places:
        return [EventStream(ports, place) for place in places]
    first: Fault | None = None
    for place in DEFAULT_PLACES:
        try:
            return [EventStream(ports, place)]
        except Fault as fault:
            first = first or fault
    assert first is not None
    raise first


class _Printer:
    def __init__(self, as_json: bool, *, names_place: bool) -> None:
        self._as_json = as_json
        self._names_place = names_place
        self._colour = has_colour()
        self.lines = 0
        """Of events; notes about a stream do not count."""

    def show(self, place: Place, kind: str, event: Event) -> None:
        is_note = kind in (_ENDED, "cut")
        if is_note:
            click.echo(f"{shown(place)}: {event['text']}", err=True)
            return
        self.lines += 1
        if self._as_json:
            click.echo(json.dumps({"from": shown(place), "event": kind} | event))
        else:
            where = f"{shown(place)}  " if self._names_place else ""
            click.echo(where + line_of(kind, event, colour=self._colour))


def line_of(kind: str, event: Event, *, colour: bool = False) -> str:
    """One line of an event: when, what, where, by whom, and how long or how much."""
    word = _WORDS.get(kind, kind)
    styled = f"\x1b[{_COLOURS[word]}m{word:6}\x1b[0m" if colour and word in _COLOURS else f"{word:6}"
    return f"{_clock(event)}  {styled}  " + "  ".join(printable(part) for part in _parts(kind, event) if part)


def _clock(event: Event) -> str:
    """The time of day in UTC, with milliseconds."""
    return str(event.get("at", "")).partition("T")[2].removesuffix("Z")


def _parts(kind: str, event: Event) -> list[str]:
    if kind in ("agent-connected", "server-connected"):
        return [_peer(event), f"from {event['address']}"]
    if kind in ("agent-gone", "server-gone"):
        tunnels = f"{event['tunnels']} tunnels" if "tunnels" in event else ""
        return [_peer(event), tunnels, event["text"]]
    client = event.get("client")
    whose = [event["endpoint"], f"by {_peer(event)}", f"for {client}" if client else ""]
    match kind:
        case "tunnel-opened":
            return [*whose, _hops(event)]
        case "dial-failed":
            return [*whose, f"after {_milliseconds(event['milliseconds'])}", f"{event['code'] or ''} {event['text']}"]
        case "tunnel-closed":
            up = int(event.get("bytesFromClient") or event.get("bytesToEndpoint") or 0)
            down = int(event.get("bytesToClient") or event.get("bytesFromEndpoint") or 0)
            return [*whose, f"{size(up)} up, {size(down)} down in {span(event['ageSeconds'])}", event["text"]]
    return [json.dumps(event)]


def _peer(event: Event) -> str:
    return str(event.get("agent") or event.get("relay") or event.get("server") or "-")


def _hops(event: Event) -> str:
    """The dial, and what of it is the way to the agent; the rest is the agent's lookup and connect."""
    whole = event["dialMilliseconds"]
    way = event.get("roundTripMilliseconds")
    if not way:
        return f"in {_milliseconds(whole)}"
    rest = max(0.0, whole - way)
    return f"in {_milliseconds(whole)}: {_milliseconds(way)} to the agent and back, {_milliseconds(rest)} there"


def _milliseconds(number: float) -> str:
    return f"{number:.1f} ms" if number < 10 else f"{number:.0f} ms"
