"""`umbilical stage retry`: the stage that failed once more, or any other whose steps are to be done again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.stage.options import directory_option
from umbilical.cli.stage.range import find_stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.hardway.stage import Stage
    from umbilical.hardway.state import State


@click.command()
@click.argument("name", required=False, metavar="[STAGE]")
@directory_option
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "junit"]), default="table", show_default=True, help="Form."
)
def retry(name: str | None, folder: Path, output: str) -> None:
    """Do the steps of STAGE again, also where it is done; without STAGE, of the one that failed or was interrupted."""
    from umbilical.cli.stage.run import execute
    from umbilical.cli.stage.work import working
    from umbilical.hardway.stages import catalogue

    stages = catalogue.stages()
    with working(folder) as work:
        number = find_stage(name, stages).number if name else _broken(stages, work.ledger.state)
        execute(work, work.pipeline(), number, number, force=True, output=output, junit=None)


def _broken(stages: "Sequence[Stage]", state: "State") -> int:
    from umbilical.hardway.state import Status

    again = (Status.FAILED, Status.INTERRUPTED, Status.RUNNING, Status.STALE)
    for stage in stages:
        if state.stage(stage.number).status in again:
            return stage.number
    raise click.UsageError("no stage failed: name one, or go on with `umbilical stage run`")
