"""The input of `container_init`: file system, user and command of a container.

Passed as JSON on standard input: variables may hold secrets, and every user can read arguments. Also which users are
mapped here, for both sides.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final


class PieceKind(Enum):
    """Kinds of entries in a container's root."""

    BIND = "bind"
    MEMORY = "memory"
    """A fresh tmpfs."""
    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True)
class Piece:
    part: PieceKind
    target: str
    """Path in the container."""
    source: str = ""
    """BIND: path on the node. FILE: content. LINK: target."""
    mode: int = 0o755
    is_read_only: bool = False
    is_optional: bool = False
    """Skip a missing source."""


@dataclass(frozen=True)
class ContainerPlan:
    root: str
    """An empty directory of the node; mounts on it are visible in the container only."""
    owner: str
    """Source name of the root's mount, by which a later runner finds leftovers of an earlier one."""
    pieces: tuple[Piece, ...]
    command: tuple[str, ...]
    working_directory: str = "/"
    environment: dict[str, str] = field(default_factory=dict)
    network: str | None = None
    """File of a network namespace; None: the node's."""
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
    pieces = tuple(Piece(**{**piece, "part": PieceKind(piece["part"])}) for piece in fields.pop("pieces"))
    tuples: dict[str, Any] = {key: tuple(fields.pop(key)) for key in ("command", "groups", "capabilities")}
    return ContainerPlan(pieces=pieces, **tuples, **fields)


def _plain(value: object) -> object:
    if isinstance(value, PieceKind):
        return value.value
    raise TypeError(type(value).__name__)


MAPS: Final = Path("/proc/self")


def is_mapped(kind: str, number: int, maps: Path = MAPS) -> bool:
    """Return whether a user (`uid`) or group (`gid`) is mapped in this user namespace, so that a process can use it."""
    for line in (maps / f"{kind}_map").read_text().splitlines():
        first, _, count = (int(text) for text in line.split())
        if first <= number < first + count:
            return True
    return False


def may_set_groups(maps: Path = MAPS) -> bool:
    """Return whether setgroups(2) is allowed; it is not in a user namespace without root."""
    return (maps / "setgroups").read_text().strip() == "allow"
