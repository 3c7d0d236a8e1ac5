"""`python -m umbilical.lab.through_proxies call|hold STOP_FILE WAYS`: a thread for every way, until a file is there.

`call` calls again and again, a connection per call. `hold` holds one stream and tells when and how it ends: through a
plain way a request stays unanswered, through the others an answer goes on and on; what still lives at the end is told.
Lines of JSON, with moments on the clock that all processes of a machine share: so a story can tell later what was
under way when.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from umbilical.lab.proxy_client import ProxyProtocol, ProxyRoute, get, open_route, read_answer, send_request

PATH: Final = "/healthz"
REST_SECONDS: Final = 0.05


@dataclass(frozen=True)
class ProxiedCall:
    way: str
    began: float
    """On CLOCK_MONOTONIC, in seconds."""
    ended: float
    failure: str = ""
    """In the words of whoever refused; empty: it was answered."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def call(name: str, way: ProxyRoute) -> ProxiedCall:
    began = time.monotonic()
    try:
        get(way, PATH)
    except OSError as error:
        return ProxiedCall(name, began, time.monotonic(), f"{type(error).__name__}: {error}")
    return ProxiedCall(name, began, time.monotonic())


def read_calls(log: str) -> list[ProxiedCall]:
    """Read what was printed so far; the last line may be half written."""
    return [ProxiedCall(**json.loads(line)) for line in whole_lines(log)]


def call_until(stop_file: Path, name: str, way: ProxyRoute) -> None:
    while not stop_file.exists():
        say(asdict(call(name, way)))
        time.sleep(REST_SECONDS)


def say(content: Mapping[str, Any]) -> None:
    # One write per line, since several threads print.
    sys.stdout.write(f"{json.dumps(content)}\n")
    sys.stdout.flush()


def read_routes(text: str) -> dict[str, ProxyRoute]:
    return {name: ProxyRoute.from_json(content) for name, content in json.loads(text).items()}


def write_routes(routes: Mapping[str, ProxyRoute]) -> str:
    return json.dumps({name: way.to_json() for name, way in routes.items()})


def whole_lines(log: str) -> Iterable[str]:
    return [line for line in log.splitlines(keepends=True) if line.startswith("{") and line.endswith("}\n")]


LOOK_SECONDS: Final = 0.5
_CHUNK: Final = 4096


class StreamMoment(Enum):
    OPENED = "opened"
    """The endpoint has answered; or, where it never will, the request is on its way."""
    ENDED = "ended"
    LIVED = "lived"
    """Until the end of the story."""


@dataclass(frozen=True)
class StreamEvent:
    stream: str
    moment: str
    at: float
    """On CLOCK_MONOTONIC, in seconds; of a stream that lived: when it was last heard."""
    how: str = ""


def hold(stop_file: Path, name: str, way: ProxyRoute) -> None:
    """Hold one stream until it ends or is to be let go."""
    try:
        with open_route(way) as stream:
            send_request(stream, way, "/never" if way.kind is ProxyProtocol.PLAIN else "/ticks")
            _watch(name, way, stream, stop_file)
    except OSError as error:
        _report(name, StreamMoment.ENDED, f"{type(error).__name__}: {error}")


def _watch(name: str, way: ProxyRoute, stream: socket.socket, stop_file: Path) -> None:
    if way.kind is not ProxyProtocol.PLAIN:
        stream.recv(_CHUNK)
    _report(name, StreamMoment.OPENED)
    heard = time.monotonic()
    stream.settimeout(LOOK_SECONDS)
    while not stop_file.exists():
        try:
            if way.kind is ProxyProtocol.PLAIN:
                _report(name, StreamMoment.ENDED, f"answered: {read_answer(stream)!r}")
                return
            if not stream.recv(_CHUNK):
                _report(name, StreamMoment.ENDED, "the proxy ended it")
                return
            heard = time.monotonic()
        except TimeoutError:
            continue
    say(asdict(StreamEvent(name, StreamMoment.LIVED.value, heard)))


def _report(name: str, moment: StreamMoment, how: str = "") -> None:
    say(asdict(StreamEvent(name, moment.value, time.monotonic(), how)))


def read_events(log: str) -> list[StreamEvent]:
    """Read what was printed so far; the last line may be half written."""
    return [StreamEvent(**json.loads(line)) for line in whole_lines(log)]


def main(arguments: list[str]) -> int:
    form, stop_file, routes = arguments
    work = call_until if form == "call" else hold
    threads = [
        threading.Thread(target=work, args=(Path(stop_file), name, way), name=name)
        for name, way in read_routes(routes).items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
