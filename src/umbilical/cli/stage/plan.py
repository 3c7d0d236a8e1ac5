"""`umbilical stage plan`: what would be created, changed or removed, told by what the files say."""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.stage.options import directory_option, utc_now
from umbilical.codes import FINDINGS

if TYPE_CHECKING:
    from umbilical.hardway.artifacts.diff.part import Part
    from umbilical.hardway.rendering import Rendered

_MARKS: Final = {"created": "+", "changed": "~", "removed": "-"}
_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}


@click.command()
@directory_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form.")
@click.option("--stat", "is_short", is_flag=True, help="Name the files only, not what differs in them.")
@click.option("--exit-code", is_flag=True, help="End with status 1 when something would change.")
def plan(folder: Path, output: str, is_short: bool, exit_code: bool) -> int:
    """Render every artifact and compare with what lies in DIR; nothing is written, and no secret is shown."""
    from umbilical.hardway import rendering

    rendered = rendering.render(folder, utc_now())
    parts = rendered.plan()
    if output == "json":
        click.echo(json.dumps(as_json(rendered, parts), indent=2))
    else:
        print_parts(parts, is_short=is_short)
        tell(rendered, parts, folder)
    return FINDINGS if parts and exit_code else 0


def as_json(rendered: "Rendered", parts: "Sequence[Part]") -> dict[str, object]:
    from umbilical.checks.report import API_VERSION
    from umbilical.hardway.artifacts.diff import part

    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "files": [part.as_json(one) for one in parts],
        "summary": counts(parts),
        "renewed": [{"id": one.id, "why": one.why} for one in rendered.renewed],
        "releaseIsRead": rendered.has_release,
    }


def counts(parts: "Sequence[Part]") -> dict[str, int]:
    return {change: sum(one.change.value == change for one in parts) for change in _MARKS}


def print_parts(parts: "Sequence[Part]", *, is_short: bool) -> None:
    from umbilical.cli.terminal import has_colour

    for line in (line for part in parts for line in _lines(part, "", is_short=is_short)):
        click.echo(_coloured(line), color=has_colour())


def tell(rendered: "Rendered", parts: "Sequence[Part]", folder: Path) -> None:
    """Say on stderr what it comes to, and what comes next."""
    from umbilical.hardway.artifacts import layout

    click.echo(", ".join(f"{number} {change}" for change, number in counts(parts).items()), err=True)
    if not rendered.has_release:
        from umbilical.hardway.workspace import extraction_commands, release_directory

        place = release_directory(folder, rendered.cluster)
        click.echo(f"note: the release is not extracted to {place}; what needs it is not in this plan", err=True)
        lines = [command.line for command in extraction_commands(folder, rendered.cluster)]
        for line in (f"mkdir -p {shlex.quote(str(place))}", *lines) if lines else ():
            click.echo(f"      $ {line}", err=True)
    for change in rendered.renewed:
        # That there was none yet is said by the line of its file.
        if layout.key(change.id) in rendered.on_disk:
            click.echo(f"note: {change.id} would be made anew: {change.why}", err=True)


def _lines(part: "Part", indent: str, *, is_short: bool) -> Iterator[str]:
    yield f"{indent}{_MARKS[part.change.value]} {part.place}{_beside(part)}"
    if is_short:
        return
    inner = f"{indent}    "
    yield from (f"{inner}{line}" for line in part.lines)
    for one in part.parts:
        yield from _lines(one, inner, is_short=False)


def _beside(part: "Part") -> str:
    if part.old is not None and part.new is not None:
        return f": {part.old} -> {part.new}"
    shown = part.old if part.new is None else part.new
    if shown is not None:
        return f": {shown}"
    return f": {part.note}" if part.note else ""


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line.lstrip(" ")[:1])
    return click.style(line, fg=colour) if colour else line
