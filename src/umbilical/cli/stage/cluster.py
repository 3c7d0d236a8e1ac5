"""Shared by all `umbilical stage` commands: the cluster's directory, site, record and stages.

Passes the lab or libvirt to the pipeline, which imports neither. Takes the lock and prompts the user.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.stage.view import Screen, StageLines, choose_view
from umbilical.fault import Fault
from umbilical.hardway.config.cluster import Cluster, MachinesKind
from umbilical.hardway.machines.interface import Machines
from umbilical.hardway.site import SmokeTest
from umbilical.hardway.stage import Stage

if TYPE_CHECKING:
    from umbilical.hardway.config.example import ExampleOptions
    from umbilical.hardway.ledger import Ledger
    from umbilical.hardway.pipeline import Ask, Pipeline
    from umbilical.hardway.site import Site
    from umbilical.hardway.stage import Stage, Step
    from umbilical.hardway.state import RunState
    from umbilical.hardway.undoing import Undoing
    from umbilical.hardway.waiting import Reporter

directory_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default=True,
    help="Cluster directory with cluster.yaml, artifacts/ and the record of stages.",
)
junit_option = click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to which the checks are also written as JUnit XML.",
)


def here(folder: Path) -> str:
    """Return the option --dir of commands to paste; empty for the current directory."""
    return "" if folder == Path() else f" --dir {shlex.quote(str(folder))}"


def utc_now() -> datetime:
    return datetime.now(UTC)


def check_cluster(folder: Path) -> None:
    """Refuse a directory without a cluster before anything is written to it. Raises Fault: UMB700, UMB701."""
    from umbilical.hardway.workspace import read_config

    read_config(folder)


def load_site(folder: Path, reporter: "Reporter") -> "Site":
    """Render a cluster's directory for stages; with the lock held, also save new keys and the password.

    Raises Fault: cluster.yaml, the release or the artifacts are unreadable or invalid.
    """
    from umbilical.hardway import rendering
    from umbilical.hardway.operators import operators_in
    from umbilical.hardway.site import Site
    from umbilical.hardway.workspace import kubeconfigs

    # Stages enter other namespaces, where a relative path would point elsewhere.
    folder = folder.absolute()
    rendered = rendering.render(folder, utc_now())
    if _holds_lock(folder):
        rendering.keep(folder, rendered)
    return Site(
        cluster=rendered.cluster,
        folder=folder,
        assets={asset.path: asset for asset in rendered.made.tree},
        hashes=rendered.hashes,
        has_tunnel=rendered.has_tunnel,
        machines=machines_for(rendered.cluster, folder),
        reporter=reporter,
        now=utc_now,
        kubeconfig=kubeconfigs(folder, rendered.inputs),
        files=rendered.made.files,
        operators=operators_in(rendered.inputs.payload.manifests),
        reload=lambda: load_site(folder, reporter),
        smoke_test=smoke_test_for(rendered.cluster),
    )


def _holds_lock(folder: Path) -> bool:
    from umbilical.hardway.ledger import holder

    who = holder(folder)
    return who is not None and who.pid == os.getpid()


LAB: Final = Path(".umbilical", "lab")
"""Relative to the cluster's directory."""


def machines_for(cluster: Cluster, folder: Path) -> Machines:
    """Return the machines that the config selects, without creating or checking any."""
    # Imported late: only a lab needs pyroute2.
    if cluster.machines is MachinesKind.LIBVIRT:
        from umbilical.hardway.machines.libvirt import LibvirtMachines

        return LibvirtMachines(cluster, folder)
    from umbilical.lab.hardway.machines import LabMachines

    archive = cluster.release.tunnel_archive
    return LabMachines(folder / LAB, cluster.name, image=folder / Path(archive).expanduser() if archive else None)


def smoke_test_for(cluster: Cluster) -> SmokeTest | None:
    """Return the smoke test of a cluster; only the lab has an image for one."""
    if cluster.machines is not MachinesKind.LAB:
        return None
    from umbilical.lab.hardway.smoke_test import LabSmokeTest

    return LabSmokeTest()


def example_sites() -> "dict[str, Site]":
    """Make a site for each profile, to list steps and checks of stages; none of them can be run."""
    from umbilical.hardway.config.example import EXAMPLES

    return {options.profile.value: _example_site(options) for options in EXAMPLES}


def _example_site(options: "ExampleOptions") -> "Site":
    from umbilical.hardway.artifacts.static_pods.pods import REMOVALS_PATH, write_removals
    from umbilical.hardway.config.example import example
    from umbilical.hardway.config.reading import read_cluster
    from umbilical.hardway.site import Site
    from umbilical.manifests.tree import Asset

    cluster, folder = read_cluster(example(options)).cluster, Path()
    return Site(
        cluster=cluster,
        folder=folder,
        assets={REMOVALS_PATH: Asset(REMOVALS_PATH, write_removals([]), 0o644)},
        hashes={},
        has_tunnel=True,
        machines=machines_for(cluster, folder),
        reporter=StageLines({}),
        now=utc_now,
        kubeconfig=lambda address: folder,
        smoke_test=smoke_test_for(cluster),
    )


_RANGE: Final = re.compile(r"(?P<first>\d{0,2})(?P<dots>\.\.)?(?P<last>\d{0,2})")


class StageRange(click.ParamType[tuple[int | None, int | None]]):
    name = "range"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "[FROM..TO|N]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        if isinstance(value, tuple):
            return value
        match = _RANGE.fullmatch(value)
        if match is None or not value or value == "..":
            self.fail(f"{value!r} is not a range of stages: write 5..8, 5.., ..8, or 8 for stages 1 to 8")
        first, last = (int(text) if text else None for text in (match["first"], match["last"]))
        return (first, last) if match["dots"] else (None, first)


def bounds(chosen: tuple[int | None, int | None] | None, stages: Sequence[Stage]) -> tuple[int, int]:
    """Return the first and last stage of a range. Raises UsageError: unknown stage, or a reversed range."""
    numbers = [stage.number for stage in stages]
    first, last = chosen or (None, None)
    for number in (first, last):
        if number is not None and number not in numbers:
            raise click.UsageError(f"there is no stage {number:02}: stages are {numbers[0]:02} to {numbers[-1]:02}")
    found = (first or numbers[0], last or numbers[-1])
    if found[0] > found[1]:
        raise click.UsageError(f"{found[0]:02} comes after {found[1]:02}: write {found[1]}..{found[0]}")
    return found


def find_stage(text: str, stages: Sequence[Stage]) -> Stage:
    """Find a stage by its number or its name."""
    for stage in stages:
        if text == stage.name or (text.isdecimal() and int(text) == stage.number):
            return stage
    names = ", ".join(f"{stage.number:02} {stage.name}" for stage in stages)
    raise click.UsageError(f"there is no stage {text}; the stages are {names}")


MAX_CLAIMS: Final = 8
"""How many expected results `--step` lists per stage; `stage show` lists all."""


@dataclass(frozen=True)
class OpenCluster:
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
def working(folder: Path, *, plain: bool = False) -> Iterator[OpenCluster]:
    """Hold a cluster's lock and open its record; missing keys are created.

    Raises:
        HardwayError: another process holds the lock (UMB720), or the record is unreadable.
        Fault: cluster.yaml is missing or invalid; no record is created then.
    """
    check_cluster(folder)
    with _recording(folder) as ledger:
        times = ((number, record.seconds) for number, record in ledger.state.stages.items())
        earlier = {number: seconds for number, seconds in times if seconds is not None}
        with choose_view(earlier, plain=plain) as screen:
            yield OpenCluster(load_site(folder, screen), ledger, screen)


@contextmanager
def reading_record(folder: Path) -> "Iterator[tuple[Site, RunState]]":
    """Load a cluster's site and record without the lock, for reading; reports are plain lines."""
    from umbilical.hardway.ledger import read_record

    state = read_record(folder)
    with choose_view(plain=True) as screen:
        site = load_site(folder, screen)
        site.notes = {key: note.value for key, note in state.notes.items()}
        yield site, state


@contextmanager
def going_back(folder: Path) -> Iterator[OpenCluster]:
    """Like `working`, to undo stages: the site is loaded before the lock is taken, so it creates no keys."""
    with choose_view() as screen:
        site = load_site(folder, screen)
        with _recording(folder) as ledger:
            yield OpenCluster(site, ledger, screen)


@contextmanager
def _recording(folder: Path) -> "Iterator[Ledger]":
    from umbilical.hardway.ledger import Ledger

    with locking(folder):
        yield Ledger(folder, utc_now)


def locking(folder: Path) -> AbstractContextManager[object]:
    """Hold a cluster's lock; this command line is shown to others as its holder."""
    from umbilical.hardway.ledger import locked

    return locked(folder, shlex.join(["umbilical", *sys.argv[1:]]), utc_now().isoformat(timespec="seconds"))


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation. Raises UsageError: stdin is not a terminal; Abort: the answer was no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("stdin is not a terminal, so there is no confirmation: add --yes")
    click.confirm(question, abort=True, err=True)


class StepPrompt:
    """Explains each stage once, with the expected results, and prompts before each of its steps."""

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
        """List the titles of the stage's checks."""
        try:
            claims = [check.title for check in stage.checks(self._site)] if self._site is not None else []
        except Fault:
            # Some checks depend on machines that do not exist yet.
            return ""
        more = [f"and {len(claims) - MAX_CLAIMS} more"] if len(claims) > MAX_CLAIMS else []
        told = "".join(f"           - {claim}\n" for claim in (*claims[:MAX_CLAIMS], *more))
        return f"expected   after this stage:\n{told}" if told else ""
