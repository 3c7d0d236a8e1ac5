"""`umbilical pki inspect` and `verify`: what certificate files hold, and whether both sides would accept them."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from umbilical.checks.check import has_failed
from umbilical.checks.report import API_VERSION, printable
from umbilical.cli.findings import output_option, report
from umbilical.cli.pki.files import read_certificates_of
from umbilical.cli.pki.options import at_least
from umbilical.cli.pki.text import as_value, expiry, long_lines, short_line
from umbilical.codes import FINDINGS
from umbilical.fault import PkiError
from umbilical.pki.certificate import Certificate, moment
from umbilical.pki.directory import DirectoryFacts, look_at
from umbilical.pki.directory_checks import HEADINGS, Question, findings
from umbilical.pki.profiles import usable_addresses
from umbilical.pki.tunnel_set import Role


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE…")
@click.option("--short", is_flag=True, help="One line for each certificate.")
@output_option("table", "json")
def inspect(paths: tuple[Path, ...], short: bool, output: str) -> int:
    """Show what is in certificate files; of a directory, in all its .crt files."""
    now = datetime.now(UTC)
    found = [(path, one) for path in _files(paths) for one in read_certificates_of(path)]
    if output == "json":
        click.echo(json.dumps(_listing(found, now), indent=2))
    elif short:
        _tell_short(found, now)
    else:
        _tell_long(found, now)
    return 0


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.crt")) if path.is_dir() else [path]
        if not inside:
            remedy = f"see what is there: ls -l {path}"
            raise PkiError("UMB152", f"no certificate in {path}", "the directory has no .crt file", remedy)
        found += inside
    return found


def _tell_short(found: list[tuple[Path, Certificate]], now: datetime) -> None:
    several = len({path for path, _ in found}) > 1
    for path, certificate in found:
        line = short_line(certificate, now)
        click.echo(printable(f"{path}: {line}" if several else line))


def _tell_long(found: list[tuple[Path, Certificate]], now: datetime) -> None:
    for number, (path, certificate) in enumerate(found):
        if number:
            click.echo()
        click.echo(printable(f"{path}"))
        for line in long_lines(certificate, now):
            click.echo(printable(line))


def _listing(found: list[tuple[Path, Certificate]], now: datetime) -> dict[str, Any]:
    items = [{"file": str(path), **as_value(certificate, now)} for path, certificate in found]
    return {"apiVersion": API_VERSION, "kind": "CertificateList", "items": items}


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
@output_option("table", "json", "junit")
def verify(folder: Path, addresses: tuple[str, ...], min_left: timedelta, roles: tuple[str, ...], output: str) -> int:
    """Check a directory of certificates as a server and an agent would use it."""
    if not folder.is_dir():
        raise PkiError("UMB156", f"{folder} is no directory", "nothing can be checked", f"ls -ld {folder}")
    dialled = usable_addresses(addresses)
    facts = look_at(folder, _roles(folder, roles), dialled)
    now = datetime.now(UTC)
    found = findings(Question(facts, now, dialled, min_left))
    # click would take the colours out again wherever the output is no terminal.
    details = {"directory": str(folder)}
    text = report(found, output, kind="PkiReport", suite=SUITE, details=details, groups=HEADINGS)
    click.echo(text, nl=False, color=True)
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
