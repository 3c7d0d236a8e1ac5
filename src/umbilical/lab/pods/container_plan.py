"""All that `container_init` is told: what the container's file system is made of, who it runs as, what it runs.

Made by the runner, handed over as JSON on standard input: variables may hold secrets, and arguments are for all to see.
Also which users exist here, which both sides ask.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final


class Part(Enum):
    """What can be laid into a root."""

    BIND = "bind"
    MEMORY = "memory"
    """A fresh tmpfs."""
    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True)
class Piece:
    part: Part
    target: str
    """In the container."""
    source: str = ""
    """BIND: a path on the node. FILE: the text. LINK: where it leads."""
    mode: int = 0o755
    is_read_only: bool = False
    is_optional: bool = False
    """A source that is not there is passed over."""


@dataclass(frozen=True)
class ContainerPlan:
    root: str
    """An empty directory of the node; what is mounted on it is seen by the container alone."""
    owner: str
    """Whoever runs it, as the name of the root's mount: by that a later runner knows what an earlier one left."""
    pieces: tuple[Piece, ...]
    command: tuple[str, ...]
    working_directory: str = "/"
    environment: dict[str, str] = field(default_factory=dict)
    network: str | None = None
    """The file of a network namespace; None: the node's."""
    hostname: str | None = None
    """None: the node's."""
    root_is_read_only: bool = False
    user: int = 0
    group: int = 0
    groups: tuple[int, ...] = ()
    capabilities: tuple[str, ...] = ()
    may_gain_privileges: bool = True

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), default=_plain).encode()


def from_json(content: bytes) -> ContainerPlan:
    fields: dict[str, Any] = json.loads(content)
    pieces = tuple(Piece(**{**piece, "part": Part(piece["part"])}) for piece in fields.pop("pieces"))
    tuples: dict[str, Any] = {key: tuple(fields.pop(key)) for key in ("command", "groups", "capabilities")}
    return ContainerPlan(pieces=pieces, **tuples, **fields)


def _plain(value: object) -> object:
    if isinstance(value, Part):
        return value.value
    raise TypeError(type(value).__name__)


MAPS: Final = Path("/proc/self")


def is_mapped(kind: str, number: int, maps: Path = MAPS) -> bool:
    """Tell whether a user (`uid`) or group (`gid`) has a counterpart outside, without which nobody can become it."""
    for line in (maps / f"{kind}_map").read_text().splitlines():
        first, _, count = (int(text) for text in line.split())
        if first <= number < first + count:
            return True
    return False


def may_set_groups(maps: Path = MAPS) -> bool:
    """Without root nobody may drop groups: a file could be closed to one of them."""
    return (maps / "setgroups").read_text().strip() == "allow"
