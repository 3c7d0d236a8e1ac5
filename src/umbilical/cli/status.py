"""`umbilical status`: asks servers and agents for their status, and shows the set at a glance."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from umbilical.cli import status_text
from umbilical.cli.admin_port import DEFAULT_PLACES, AdminPorts, Place, place_options, shown, unanswered
from umbilical.cli.findings import output_option
from umbilical.cli.options import FILE, duration
from umbilical.cli.terminal import has_colour, is_dumb
from umbilical.codes import FINDINGS, INTERRUPTED
from umbilical.fault import Fault
from umbilical.tunnel.status.parts import API_VERSION
from umbilical.tunnel.status.state import DOWN, HEALTHY, IDLE, Document, worst

SHORTEST_SECONDS: Final = 0.5
"""Between two repaints."""
KINDS: Final = ("ServerStatus", "AgentStatus")
SET: Final = "SetStatus"
LARGEST_BYTES: Final = 1 << 30
"""Far above the status of 5,000 agents and 100,000 tunnels: it bounds what a wrong address may send."""


@click.command()
@place_options
@click.option("--from", "files", type=FILE, multiple=True, help="Show a saved JSON output instead; repeatable.")
@click.option(
    "--tunnels", type=click.IntRange(0), default=1000, show_default=True, help="Maximum tunnels that are listed."
)
@click.option("-w", "--watch", "watches", is_flag=True, help="Repaint until Ctrl-C.")
@click.option("--interval", type=duration, default="2s", show_default=True, help="Interval of --watch; at least 500ms.")
@output_option("table", "wide", "json", "yaml")
def status(
    places: tuple[Place, ...], files: tuple[Path, ...], watches: bool, interval: float, output: str, **options: Any
) -> int:
    """Show the state of servers and agents, and why it is so.

    The exit status is 0 if the set is healthy or idle, and 1 if it is degraded or down.
    """
    if files and (places or watches):
        raise click.UsageError("--from shows files; it does not go with --admin and --watch")
    if files:
        documents = [document for path in files for document in read_saved(path)]
        return _show(merged_set(documents), output)
    source = Source(places, options["ca"], options["token_file"], options["tunnels"])
    if not watches:
        return _show(merged_set(source.ask(is_first=True)), output)
    try:
        _watch(source, max(interval, SHORTEST_SECONDS), output)
    except KeyboardInterrupt:
        return INTERRUPTED


class Source:
    """Where documents come from."""

    def __init__(self, places: Sequence[Place], authority: Path | None, token: Path | None, tunnels: int) -> None:
        self._places: Final = places or DEFAULT_PLACES
        self._missed: Final = set(places)
        """Those that count as down if they do not answer."""
        self._ports: Final = AdminPorts(authority, token)
        self._path: Final = f"/v1/status?tunnels={tunnels}"

    def ask(self, *, is_first: bool) -> list[Document]:
        """Ask all. Raises Fault if this is the first time and nobody answers; of default places one is enough, and one
        that has answered before is missed."""
        found: list[Document] = []
        faults: list[tuple[Place, Fault]] = []
        for place in self._places:
            try:
                found.append(self._ask_one(place))
                self._missed.add(place)
            except Fault as fault:
                faults.append((place, fault))
        if faults and is_first and not found:
            raise faults[0][1]
        return found + [_unreached(place, fault) for place, fault in faults if place in self._missed]

    def _ask_one(self, place: Place) -> Document:
        from http.client import HTTPException

        connection, response = self._ports.get(place, self._path)
        try:
            body = response.read(LARGEST_BYTES)
        except (OSError, HTTPException) as error:
            raise unanswered(place, error) from None
        finally:
            connection.close()
        return _documents(body, shown(place))[0]


def _unreached(place: Place, fault: Fault) -> Document:
    text = f"{fault.code} {fault.why}"
    return {"kind": "UnreachedStatus", "address": shown(place), "state": DOWN, "reason": text}


def read_saved(path: Path) -> list[Document]:
    """Raises Fault: it cannot be read, or is not what `-o json` writes."""
    try:
        octets = path.read_bytes()
    except OSError as error:
        raise Fault("UMB002", f"cannot read {path}", error.strerror or str(error), f"ls -l {path}") from None
    return _documents(octets, str(path))


def _documents(octets: bytes, name: str) -> list[Document]:
    try:
        read = json.loads(octets)
        found = read["items"] if read["kind"] == SET else [read]
        if all(each["kind"] in (*KINDS, "UnreachedStatus") and each["state"] for each in found) and found:
            return list(found)
        why = f"it is of kind {read['kind']!r}"
    except (ValueError, TypeError, KeyError) as error:
        why = f"it is not such a document: {error!r}"
    raise Fault("UMB213", f"{name} has no status", why, "save one: umbilical status -o json > FILE")


def merged_set(documents: Sequence[Document]) -> Document:
    """Several documents with the state of all; the reasons of bad ones come first."""
    word = worst([document["state"] for document in documents])
    ordered = sorted(documents, key=lambda one: _BADNESS.get(one["state"], 0), reverse=True)
    several = len(documents) > 1
    reasons = [
        {"of": status_text.name_of(one), "text": f"{status_text.name_of(one)}: {text}" if several else text}
        for one in ordered
        for text in [reason["text"] for reason in one.get("reasons", [])] or [one["reason"]]
        if one["state"] == ordered[0]["state"] or one["state"] not in (HEALTHY, IDLE)
    ]
    head = {"apiVersion": API_VERSION, "kind": SET, "state": word, "reason": reasons[0]["text"], "reasons": reasons}
    return head | {"items": list(documents)}


_BADNESS: Final = {IDLE: 0, HEALTHY: 1, "degraded": 2, DOWN: 3}


def _show(found: Document, output: str) -> int:
    click.echo(_rendered(found, output, colour=has_colour()), nl=False)
    return 0 if found["state"] in (HEALTHY, IDLE) else FINDINGS


def _rendered(found: Document, output: str, *, colour: bool) -> str:
    if output == "json":
        return json.dumps(found, indent=2) + "\n"
    if output == "yaml":
        from umbilical.manifests.tree import yaml_bytes

        return yaml_bytes(found).decode()
    return status_text.as_table(found, is_wide=output == "wide", colour=colour)


def _watch(source: Source, interval: float, output: str) -> NoReturn:
    """Until Ctrl-C. A pipe gets one block after the other, and JSON as lines."""
    is_screen = output in ("table", "wide") and sys.stdout.isatty() and not is_dumb()
    paint: Callable[[str], None] = StatusScreen().paint if is_screen else _append
    is_first = True
    while True:
        began = time.monotonic()
        found = merged_set(source.ask(is_first=is_first))
        is_first = False
        paint(json.dumps(found) + "\n" if output == "json" else _rendered(found, output, colour=has_colour()))
        time.sleep(max(SHORTEST_SECONDS, interval - (time.monotonic() - began)))


def _append(text: str) -> None:
    click.echo(text if text.startswith("{") else f"{text}\n", nl=False)


class StatusScreen:
    """Repaints in place: lines are overwritten, not cleared first, so that nothing flickers."""

    _CLEAR: Final = "\x1b[2J"
    _HOME: Final = "\x1b[H"
    _REST_OF_LINE: Final = "\x1b[K"
    _REST: Final = "\x1b[J"

    def __init__(self) -> None:
        click.echo(self._CLEAR, nl=False)

    def paint(self, text: str) -> None:
        size = shutil.get_terminal_size()
        lines = text.splitlines()
        if len(lines) >= size.lines:
            left = len(lines) - size.lines + 2
            lines = [
                *lines[: size.lines - 2],
                f"… {left} more lines: use a taller terminal, or -o wide without --watch",
            ]
        shown = [status_text.cut(line, size.columns) + self._REST_OF_LINE for line in lines]
        click.echo(self._HOME + "\r\n".join(shown) + f"\r\n{self._REST}", nl=False)
        sys.stdout.flush()
