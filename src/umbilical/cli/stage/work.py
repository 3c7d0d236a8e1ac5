"""Working on a cluster's record: the lock, the ledger, the site and who is told, for one command."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.stage.options import check_cluster, load_site, utc_now
from umbilical.cli.stage.view import Screen, choose_view

if TYPE_CHECKING:
    from umbilical.hardway.ledger import Ledger
    from umbilical.hardway.pipeline import Ask, Pipeline
    from umbilical.hardway.site import Site
    from umbilical.hardway.stage import Stage, Step
    from umbilical.hardway.undoing import Undoing

MAX_CLAIMS: Final = 8
"""Of what should be so after a stage, how much is told before it: the rest is in `stage show`."""


@dataclass(frozen=True)
class Work:
    site: "Site"
    ledger: "Ledger"
    screen: Screen

    def pipeline(self, ask: "Ask | None" = None) -> "Pipeline":
        from umbilical.hardway.pipeline import Pipeline
        from umbilical.hardway.stages import catalogue

        return Pipeline(catalogue.stages(), self.site, self.ledger, self.screen, ask)

    def undoing(self) -> "Undoing":
        from umbilical.hardway.stages import catalogue
        from umbilical.hardway.undoing import Undoing

        return Undoing(catalogue.stages(), catalogue.undoers(), self.site, self.ledger, self.screen)


@contextmanager
def working(folder: Path, *, plain: bool = False) -> Iterator[Work]:
    """Hold a cluster's lock and open its record, to go on with it. Keys that are missing are made.

    Raises:
        HardwayError: somebody else works on it (UMB720), or the record cannot be read.
        Fault: there is no cluster's file, or none that can be used; no record is begun then.
    """
    check_cluster(folder)
    with _recording(folder) as ledger:
        times = ((number, record.seconds) for number, record in ledger.state.stages.items())
        earlier = {number: seconds for number, seconds in times if seconds is not None}
        with choose_view(earlier, plain=plain) as screen:
            yield Work(load_site(folder, screen), ledger, screen)


@contextmanager
def going_back(folder: Path) -> Iterator[Work]:
    """The same to undo something: the site is loaded before the lock is held, so that it makes no new keys."""
    with choose_view() as screen:
        site = load_site(folder, screen)
        with _recording(folder) as ledger:
            yield Work(site, ledger, screen)


@contextmanager
def _recording(folder: Path) -> "Iterator[Ledger]":
    from umbilical.hardway.ledger import Ledger
    from umbilical.hardway.locking import locked

    command = shlex.join(["umbilical", *sys.argv[1:]])
    with locked(folder, command, utc_now().isoformat(timespec="seconds")):
        yield Ledger(folder, utc_now)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is taken away.

    Raises:
        UsageError: nobody can be asked.
        Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to be asked: give --yes")
    click.confirm(question, abort=True, err=True)


class Asking:
    """Explains each stage once with what must hold after it, and asks before each of its steps."""

    def __init__(self, site: "Site | None" = None) -> None:
        self._site = site
        self._stage: Stage | None = None

    def __call__(self, stage: "Stage", step: "Step") -> bool:
        from umbilical.cli.stage import report, view

        if stage is not self._stage:
            self._stage = stage
            click.echo(f"\n{report.explanation(stage)}{self._expected(stage)}", err=True, nl=False)
        return view.ask_step(step.title, step.command)

    def _expected(self, stage: "Stage") -> str:
        """Say what should be so when it is done: the claims of its checks, of which rules of the lint are many."""
        from umbilical.fault import Fault

        try:
            claims = [check.title for check in stage.checks(self._site)] if self._site is not None else []
        except Fault:
            # A look at machines that are not there yet; what is expected of them cannot be listed.
            return ""
        more = [f"and {len(claims) - MAX_CLAIMS} more"] if len(claims) > MAX_CLAIMS else []
        told = "".join(f"           - {claim}\n" for claim in (*claims[:MAX_CLAIMS], *more))
        return f"then       this should be so:\n{told}" if told else ""
