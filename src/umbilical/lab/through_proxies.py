"""`python -m umbilical.lab.through_proxies call|hold STOP_FILE ROUTES`: one thread per route, until the file exists.

`call` calls repeatedly, with a new connection per call. `hold` holds one stream and reports when and how it ends; a
plain request stays unanswered, the others receive an endless answer. Prints JSON lines with times on CLOCK_MONOTONIC,
which all processes of a machine share, so that a scenario can see what was running at a given time.
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
    """The error; empty if the call was answered."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def call(name: str, route: ProxyRoute) -> ProxiedCall:
    began = time.monotonic()
    try:
        get(route, PATH)
    except OSError as error:
        return ProxiedCall(name, began, time.monotonic(), f"{type(error).__name__}: {error}")
    return ProxiedCall(name, began, time.monotonic())


def read_calls(log: str) -> list[ProxiedCall]:
    """Read the printed lines; the last one may be incomplete."""
    return [ProxiedCall(**json.loads(line)) for line in whole_lines(log)]


def call_until(stop_file: Path, name: str, route: ProxyRoute) -> None:
    while not stop_file.exists():
        say(asdict(call(name, route)))
        time.sleep(REST_SECONDS)


def say(content: Mapping[str, Any]) -> None:
    # One write per line, because several threads print.
    sys.stdout.write(f"{json.dumps(content)}\n")
    sys.stdout.flush()


def read_routes(text: str) -> dict[str, ProxyRoute]:
    return {name: ProxyRoute.from_json(content) for name, content in json.loads(text).items()}


def write_routes(routes: Mapping[str, ProxyRoute]) -> str:
    return json.dumps({name: route.to_json() for name, route in routes.items()})


def whole_lines(log: str) -> Iterable[str]:
    return [line for line in log.splitlines(keepends=True) if line.startswith("{") and line.endswith("}\n")]


LOOK_SECONDS: Final = 0.5
_CHUNK: Final = 4096


class StreamMoment(Enum):
    OPENED = "opened"
    """The endpoint has answered; for `PLAIN`, the request was sent."""
    ENDED = "ended"
    LIVED = "lived"
    """It was still open at the end."""


@dataclass(frozen=True)
class StreamEvent:
    stream: str
    moment: str
    at: float
    """On CLOCK_MONOTONIC, in seconds; for LIVED: when data last arrived."""
    how: str = ""


def hold(stop_file: Path, name: str, route: ProxyRoute) -> None:
    """Hold one stream until it ends or the file exists."""
    try:
        with open_route(route) as stream:
            send_request(stream, route, "/never" if route.kind is ProxyProtocol.PLAIN else "/ticks")
            _watch(name, route, stream, stop_file)
    except OSError as error:
        _report(name, StreamMoment.ENDED, f"{type(error).__name__}: {error}")


def _watch(name: str, route: ProxyRoute, stream: socket.socket, stop_file: Path) -> None:
    if route.kind is not ProxyProtocol.PLAIN:
        stream.recv(_CHUNK)
    _report(name, StreamMoment.OPENED)
    heard = time.monotonic()
    stream.settimeout(LOOK_SECONDS)
    while not stop_file.exists():
        try:
            if route.kind is ProxyProtocol.PLAIN:
                _report(name, StreamMoment.ENDED, f"answered: {read_answer(stream)!r}")
                return
            if not stream.recv(_CHUNK):
                _report(name, StreamMoment.ENDED, "the proxy closed it")
                return
            heard = time.monotonic()
        except TimeoutError:
            continue
    say(asdict(StreamEvent(name, StreamMoment.LIVED.value, heard)))


def _report(name: str, moment: StreamMoment, how: str = "") -> None:
    say(asdict(StreamEvent(name, moment.value, time.monotonic(), how)))


def read_events(log: str) -> list[StreamEvent]:
    """Read the printed lines; the last one may be incomplete."""
    return [StreamEvent(**json.loads(line)) for line in whole_lines(log)]


def main(arguments: list[str]) -> int:
    form, stop_file, routes = arguments
    work = call_until if form == "call" else hold
    threads = [
        threading.Thread(target=work, args=(Path(stop_file), name, route), name=name)
        for name, route in read_routes(routes).items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
