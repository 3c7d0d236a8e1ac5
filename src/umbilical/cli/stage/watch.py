"""`umbilical stage watch`: follow a run from another terminal; only reads the journal."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.findings import output_option
from umbilical.cli.stage.cluster import check_cluster, directory_option

if TYPE_CHECKING:
    from umbilical.cli.stage.view import Screen
    from umbilical.hardway.journal import JournalEvent

POLL_SECONDS: Final = 0.5
_ENDINGS: Final = {
    "stage-done": "done",
    "stage-skipped": "skipped",
    "stage-failed": "failed",
    "stage-interrupted": "interrupted",
    "stage-undone": "undone",
}


@click.command()
@directory_option
@click.option("--once", is_flag=True, help="Show the events so far and exit.")
@output_option("table", "json")
def watch(folder: Path, once: bool, output: str) -> None:
    """Follow a run from another terminal.

    Shows events since the last run began. Ctrl-C ends the command, not the run.
    """
    from umbilical.cli.stage.view import choose_view
    from umbilical.hardway.stages import catalogue

    check_cluster(folder)
    titles = {stage.number: stage.title for stage in catalogue.stages()}
    with choose_view(plain=once or output == "json") as screen:
        for event in follow(folder, forever=not once):
            if output == "json":
                click.echo(event.to_line(), nl=False)
            else:
                show_event(event, screen, titles)


def follow(folder: Path, *, forever: bool, sleep: Callable[[float], None] = time.sleep) -> "Iterator[JournalEvent]":
    """Yield the events since the last run began, then new ones."""
    from umbilical.hardway.journal import JOURNAL, EventKind, Tail
    from umbilical.hardway.ledger import RECORD

    tail = Tail(folder / RECORD / JOURNAL)
    events = tail.new()
    starts = [index for index, event in enumerate(events) if event.kind == EventKind.RUN_BEGAN.value]
    yield from events[starts[-1] if starts else 0 :]
    while forever:
        sleep(POLL_SECONDS)
        yield from tail.new()


def show_event(event: "JournalEvent", screen: "Screen", titles: Mapping[int, str]) -> None:
    """Show one event as the run itself shows it."""
    from umbilical.hardway.journal import EventKind
    from umbilical.hardway.waiting import WaitProgress

    values = event.values
    if event.kind == EventKind.STAGE_BEGAN.value:
        screen.stage(event.stage, titles.get(event.stage, ""))
    elif event.kind == EventKind.STEP_BEGAN.value:
        screen.step(values["title"], values["command"])
    elif event.kind == EventKind.UNDO_BEGAN.value:
        screen.step(f"undo: {values['name']}", "")
    elif event.kind == EventKind.SAW.value:
        screen.saw(values["text"])
    elif event.kind == EventKind.WAITING.value:
        times = (values["elapsed_seconds"], values["timeout_seconds"])
        screen.waiting(WaitProgress(values["what"], values["seen"], *times, tuple(values["hints"])))
    elif event.kind == EventKind.TABLE.value:
        cells = {(row, signal): text for row, signal, text in values["cells"]}
        screen.table(values["rows"], values["signals"], cells)
    elif event.kind in _ENDINGS:
        _show_end(event, screen)


def _show_end(event: "JournalEvent", screen: "Screen") -> None:
    failure = event.values.get("failure")
    if failure is not None:
        screen.saw(f"{failure['code']} {failure['what']}\n  why: {failure['why']}\n  next: {failure['next']}")
    if event.kind == "stage-skipped":
        screen.line(f"stage {event.stage:02} skipped: {event.values['reason']}")
    else:
        screen.ended(event.stage, _ENDINGS[event.kind], event.values.get("seconds", 0.0))
