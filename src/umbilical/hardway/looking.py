"""Checks of stages as plain functions: a look that returns what it saw, or says that it is not so yet.

One look serves three: the wait of a stage, its check, and `stage status`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from umbilical.checks.check import Check, Verdict, failed, passed
from umbilical.fault import Fault
from umbilical.hardway.waiting import NotYet, Signature, wait

if TYPE_CHECKING:
    from umbilical.hardway.site import Site

Look = Callable[["Site"], str]
"""Returns what was seen, in a few words; raises NotYet or a Fault."""


@dataclass(frozen=True)
class Sight:
    """Something that is to be so, how it is looked at, and what to do if it is not."""

    id: str
    title: str
    why: str
    fix: str
    look: Look
    signatures: Sequence[Signature] = ()

    @property
    def check(self) -> "Check[Site]":
        return Check(self.id, self.title, self.why, self.fix, self._judge)

    def wait(self, site: "Site", timeout_seconds: float, poll_seconds: float = 1.0) -> str:
        """Look until it is so, and tell what was seen.

        Raises:
            StageTimeout: it did not become so.
        """
        seen = wait(
            site.reporter,
            self.title,
            lambda: self._look(site),
            timeout_seconds,
            remedy=self.fix,
            signatures=self.signatures,
            poll_seconds=poll_seconds,
            sleep=site.sleep,
        )
        site.reporter.saw(f"{self.title}: {seen}" if seen else self.title)
        return seen

    def _look(self, site: "Site") -> str:
        try:
            return self.look(site)
        except Fault as fault:
            raise NotYet(fault.brief) from None

    def _judge(self, site: "Site") -> Verdict:
        try:
            return passed(self._look(site))
        except NotYet as error:
            return failed(str(error))


def see(site: "Site", seconds: float, *sights: Sight) -> None:
    """Wait for one after the other, each for as long."""
    for sight in sights:
        sight.wait(site, seconds)
