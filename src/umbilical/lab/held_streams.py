"""`python -m umbilical.lab.held_streams STOP_FILE WAYS`: hold a stream through every way, tell when and how it ends.

Through a plain way a request stays unanswered, through the others an answer goes on and on. Lines of JSON, with moments
on the clock that all processes of a machine share. When the file is there, what still lives is told, and let go.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.lab.proxied_calls import read_ways, say, whole_lines
from umbilical.lab.proxy_client import Kind, Way, open_way, read_answer, send_request

LOOK_SECONDS: Final = 0.5
_CHUNK: Final = 4096


class Moment(Enum):
    OPENED = "opened"
    """The endpoint has answered; or, where it never will, the request is on its way."""
    ENDED = "ended"
    LIVED = "lived"
    """Until the end of the story."""


@dataclass(frozen=True)
class Told:
    stream: str
    moment: str
    at: float
    """On CLOCK_MONOTONIC, in seconds; of a stream that lived: when it was last heard."""
    how: str = ""


def hold(name: str, way: Way, stop_file: Path) -> None:
    """Hold one stream until it ends or is to be let go."""
    try:
        with open_way(way) as stream:
            send_request(stream, way, "/never" if way.kind is Kind.PLAIN else "/ticks")
            _watch(name, way, stream, stop_file)
    except OSError as error:
        _tell(name, Moment.ENDED, f"{type(error).__name__}: {error}")


def _watch(name: str, way: Way, stream: socket.socket, stop_file: Path) -> None:
    if way.kind is not Kind.PLAIN:
        stream.recv(_CHUNK)
    _tell(name, Moment.OPENED)
    heard = time.monotonic()
    stream.settimeout(LOOK_SECONDS)
    while not stop_file.exists():
        try:
            if way.kind is Kind.PLAIN:
                _tell(name, Moment.ENDED, f"answered: {read_answer(stream)!r}")
                return
            if not stream.recv(_CHUNK):
                _tell(name, Moment.ENDED, "the proxy ended it")
                return
            heard = time.monotonic()
        except TimeoutError:
            continue
    say(asdict(Told(name, Moment.LIVED.value, heard)))


def _tell(name: str, moment: Moment, how: str = "") -> None:
    say(asdict(Told(name, moment.value, time.monotonic(), how)))


def read_told(log: str) -> list[Told]:
    """Read what was printed so far; the last line may be half written."""
    return [Told(**json.loads(line)) for line in whole_lines(log)]


def hold_all(stop_file: Path, ways: Mapping[str, Way]) -> None:
    threads = [threading.Thread(target=hold, args=(name, way, stop_file), name=name) for name, way in ways.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(arguments: list[str]) -> int:
    hold_all(Path(arguments[0]), read_ways(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
