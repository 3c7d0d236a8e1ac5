"""`python -m umbilical.lab.proxied_calls STOP_FILE WAYS`: call through every way until a file is there.

Each way has a thread that calls again and again, a connection per call. Every call is told as one line of JSON, with
its moments on the clock that all processes of a machine share: so a story can tell later what was under way when.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from umbilical.lab.proxy_client import Way, get

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


def call(name: str, way: Way) -> ProxiedCall:
    began = time.monotonic()
    try:
        get(way, PATH)
    except OSError as error:
        return ProxiedCall(name, began, time.monotonic(), f"{type(error).__name__}: {error}")
    return ProxiedCall(name, began, time.monotonic())


def read_calls(log: str) -> list[ProxiedCall]:
    """Read what was printed so far; the last line may be half written."""
    return [ProxiedCall(**json.loads(line)) for line in whole_lines(log)]


def call_until(stop_file: Path, ways: Mapping[str, Way]) -> None:
    threads = [
        threading.Thread(target=_call_again, args=(stop_file, name, way), name=name) for name, way in ways.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _call_again(stop_file: Path, name: str, way: Way) -> None:
    while not stop_file.exists():
        say(asdict(call(name, way)))
        time.sleep(REST_SECONDS)


def say(content: Mapping[str, Any]) -> None:
    # One write per line, since several threads print.
    sys.stdout.write(f"{json.dumps(content)}\n")
    sys.stdout.flush()


def read_ways(text: str) -> dict[str, Way]:
    return {name: Way.from_json(content) for name, content in json.loads(text).items()}


def write_ways(ways: Mapping[str, Way]) -> str:
    return json.dumps({name: way.to_json() for name, way in ways.items()})


def whole_lines(log: str) -> Iterable[str]:
    return [line for line in log.splitlines(keepends=True) if line.startswith("{") and line.endswith("}\n")]


def main(arguments: list[str]) -> int:
    call_until(Path(arguments[0]), read_ways(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
