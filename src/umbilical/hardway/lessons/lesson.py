"""What a lesson is: a story for the reader, a fault in artifacts or in running machines, and what recognises it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from umbilical.hardway.config.cluster import Profile
from umbilical.hardway.lessons.desk import Desk

if TYPE_CHECKING:
    from umbilical.hardway.site import Site


@dataclass(frozen=True)
class Live:
    """The same fault in machines that run."""

    fault: str
    """What is done to them."""
    spoil: Callable[["Site"], None]
    mend: Callable[["Site"], None]
    """Both idempotent."""
    sign: str
    """A regular expression for what a look at the machines then says."""


@dataclass(frozen=True)
class Lesson:
    id: str
    story: str
    """What one sees, not what is wrong."""
    fault: str
    """What was put in."""
    mending: str
    """How one mends it for good, in a cluster that nobody broke on purpose."""
    rules: tuple[str, ...]
    """Rules of the lint that fire."""
    sign: str
    """A regular expression for what one of them says."""
    profiles: frozenset[Profile]
    spoil: Callable[[Desk], None]
    live: Live | None = None
