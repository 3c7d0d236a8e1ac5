"""What a stage is: inputs, steps that bring about what it is for, and checks that say whether that is so now.

Done means that its checks pass now, never that a script reached its end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from umbilical.checks.check import Check

if TYPE_CHECKING:
    from umbilical.hardway.site import Site


NEVER: Final = "never"


@dataclass(frozen=True)
class Undo:
    """The inverse of a side effect, as it is written into the record: a name of `undoing.UNDOERS` and its values.

    The name NEVER marks a point of no return: `values` has `why`. No secrets: the record is no place for them.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One action of a stage; idempotent, since a killed run is resumed by doing it again."""

    title: str
    """Imperative: `join etcd on master-0`."""
    command: str
    """What one would type by hand for it; `--step` shows it."""
    act: Callable[[], None]
    undo: Undo | None = None
    """Written down before `act` is called."""


class Stage(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str:
        """One word or two: `pki`, `static-pods`."""
        ...

    @property
    def title(self) -> str: ...

    @property
    def needs(self) -> tuple[int, ...]:
        """Stages whose outcome this one builds on: when one of them changes, this one is stale."""
        ...

    def inputs(self, site: "Site") -> Mapping[str, str]:
        """Name -> content hash of what this stage was made from. Other values mean: stale."""
        ...

    def steps(self, site: "Site") -> Sequence[Step]: ...

    def checks(self, site: "Site") -> Sequence[Check["Site"]]: ...


@runtime_checkable
class Producing(Protocol):
    """A stage that says what came of it, for the record."""

    def outputs(self, site: "Site") -> Mapping[str, str]:
        """Name -> content hash."""
        ...


@runtime_checkable
class Superseded(Protocol):
    """A stage whose outcome a later one takes away on purpose: bootstrap's ends with the pivot."""

    @property
    def ends_with(self) -> int:
        """The later stage: once that is done, or past its point of no return, this one is not asked any more."""
        ...


@runtime_checkable
class Rerendering(Protocol):
    """A stage whose outcome artifacts are rendered from: afterwards the site is loaded anew."""

    def rerenders(self, site: "Site") -> bool: ...
