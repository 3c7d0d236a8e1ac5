"""Records of every tunnel by its client and its endpoint, one JSON line each; they are compared after a chaos run."""

import json
import threading
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class TrafficKind(StrEnum):
    ECHO = "echo"
    """The endpoint returns every byte, which acknowledges it."""
    UP = "up"
    """The client sends; the endpoint acknowledges how many bytes it has checked."""
    DOWN = "down"
    """The endpoint sends; the client acknowledges."""


class Outcome(StrEnum):
    WHOLE = "whole"
    BROKEN = "broken"
    """The tunnel ended too early, orderly or by a reset."""
    REFUSED = "refused"
    """The dial failed."""
    STALLED = "stalled"
    """Neither bytes nor an end arrived, which must never happen."""


@dataclass
class ClientRecord:
    """A tunnel as seen by its client."""

    tunnel: int
    server: str
    endpoint: str
    kind: TrafficKind
    size: int
    began: float
    """By the machine's monotonic clock, which all processes share."""
    ended: float = 0.0
    caller: str = ""
    """The address that the endpoint was dialled from, which identifies the agent; empty if it sent nothing."""
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    outcome: Outcome = Outcome.BROKEN
    how: str = ""
    violation: str = ""


@dataclass
class EndpointRecord:
    """A tunnel as seen by its endpoint."""

    tunnel: int
    endpoint: str
    kind: TrafficKind
    size: int
    received: int = 0
    sent: int = 0
    acknowledged: int = 0
    how: str = ""
    violation: str = ""


ACKNOWLEDGE_BYTES: Final = 65536
FINAL_ACKNOWLEDGEMENT: Final = b"."


class RecordFile:
    """Appends records to a file; usable by several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, row: ClientRecord | EndpointRecord) -> None:
        line = json.dumps(asdict(row)) + "\n"
        with self._lock, self._path.open("a") as stream:
            stream.write(line)


def read_client_records(text: str) -> list[ClientRecord]:
    return [ClientRecord(**_named(row, outcome=Outcome(row["outcome"]))) for row in map(json.loads, text.splitlines())]


def read_endpoint_records(text: str) -> list[EndpointRecord]:
    return [EndpointRecord(**_named(row)) for row in map(json.loads, text.splitlines())]


def _named(row: dict[str, Any], **more: object) -> dict[str, Any]:
    return {**row, "kind": TrafficKind(row["kind"]), **more}
