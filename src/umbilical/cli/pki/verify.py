"""`umbilical pki verify`: would this directory's server and agents accept each other, and for how long?"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from umbilical.checks.check import Finding, has_failed
from umbilical.checks.report import as_json, as_junit, as_table, printable
from umbilical.cli.pki.checks import HEADINGS, Question, findings
from umbilical.cli.pki.options import at_least
from umbilical.cli.pki.text import expiry, moment
from umbilical.cli.terminal import has_colour, has_unicode
from umbilical.codes import FINDINGS
from umbilical.fault import PkiError
from umbilical.pki.directory import DirectoryFacts, look_at
from umbilical.pki.profiles import usable_addresses
from umbilical.pki.tunnel_set import Role

SUITE: Final = "pki"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--address", "addresses", multiple=True, metavar="ADDRESS", help="What agents dial; may be given again.")
@click.option(
    "--min-left",
    type=at_least,
    metavar="DURATION",
    default="30m",
    show_default=True,
    help="Fail when less than this is left.",
)
@click.option(
    "--only",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    help="Look at this certificate only; may be given again.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "junit"]), default="table", help="Form of the answer."
)
def verify(folder: Path, addresses: tuple[str, ...], min_left: timedelta, roles: tuple[str, ...], output: str) -> int:
    """Check a directory of certificates as a server and an agent would use it."""
    if not folder.is_dir():
        raise PkiError("UMB156", f"{folder} is no directory", "nothing can be checked", f"ls -ld {folder}")
    dialled = usable_addresses(addresses)
    facts = look_at(folder, _roles(folder, roles), dialled)
    now = datetime.now(UTC)
    found = findings(Question(facts, now, dialled, min_left))
    # click would take the colours out again wherever the output is no terminal.
    click.echo(_report(found, folder, output), nl=False, color=True)
    _tell_end(facts, now)
    return FINDINGS if has_failed(found) else 0


def _roles(folder: Path, asked: tuple[str, ...]) -> list[Role]:
    """Take what is asked for; else the server's and the agents', and the clients' where there is one."""
    if asked:
        return [role for role in Role if role.value in asked]
    client = Role.CLIENT
    has_client = any(os.path.lexists(folder / name) for name in (client.certificate_file, client.key_file))
    return [Role.SERVER, Role.AGENT, *([client] if has_client else [])]


def _tell_end(facts: DirectoryFacts, now: datetime) -> None:
    """Say what ends first: the one number that people look for when all is well."""
    certificates = [leaf.certificate for leaf in facts.leaves.values() if leaf.certificate]
    if certificates:
        first = min(certificates, key=lambda one: one.not_after)
        line = f"first to end: {first.common_name}, {expiry(first, now)}, {moment(first.not_after)}"
        click.echo(printable(line), err=True)


def _report(found: list[Finding], folder: Path, output: str) -> str:
    if output == "json":
        return as_json(found, "PkiReport", {"directory": str(folder)})
    if output == "junit":
        return as_junit(found, SUITE)
    return as_table(found, has_colour(), has_unicode(), HEADINGS)
