"""What machines tell of themselves, whoever runs them: stages read it, labs and virtual machines write it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Power(Enum):
    ABSENT = "absent"
    OFF = "off"
    ON = "on"


@dataclass(frozen=True)
class Survey:
    cores: int
    memory_mib: int
    free_disk_gib: int
    programs: Mapping[str, str]
    """Name -> where it was found; empty text: missing."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """What a program on a node came to."""

    exit_code: int
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """The last line that it printed, complaints first."""
        lines = (self.stderr or self.stdout).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it exited with {self.exit_code} and said nothing"


@dataclass(frozen=True)
class BackendServer:
    """One line of the load balancer's own view."""

    backend: str
    server: str
    """The node's name."""
    is_up: bool
    check: str
    """What its last check said, for instance L7OK."""


@dataclass(frozen=True)
class InfrastructureProbe:
    """One fact about the infrastructure, as seen now."""

    id: str
    is_right: bool
    seen: str
    fix: str = ""
