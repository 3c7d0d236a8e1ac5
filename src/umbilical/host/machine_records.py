"""Facts about machines: labs and virtual machines produce them, stages read them."""

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
    """Name -> path; empty: not found."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """Result of a program on a node."""

    exit_code: int
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """The last line of standard error, or of standard output."""
        lines = (self.stderr or self.stdout).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it exited with {self.exit_code} and printed nothing"


@dataclass(frozen=True)
class BackendServer:
    """One server in the load balancer's statistics."""

    backend: str
    server: str
    """The node's name."""
    is_up: bool
    check: str
    """Result of its last check, e.g. L7OK."""


@dataclass(frozen=True)
class InfraProbe:
    """One fact about the infrastructure."""

    id: str
    is_right: bool
    seen: str
    fix: str = ""
