"""`umbilical pki inspect` and `verify`: show certificate files, and check that server and agent accept them."""

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
from umbilical.pki.directory import DirectoryFacts, read_directory
from umbilical.pki.directory_checks import HEADINGS, DirectoryInput, findings
from umbilical.pki.profiles import usable_addresses
from umbilical.pki.tunnel_set import TunnelRole


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE…")
@click.option("--short", is_flag=True, help="Print one line per certificate.")
@output_option("table", "json")
def inspect(paths: tuple[Path, ...], short: bool, output: str) -> int:
    """Show certificate files, or all .crt files of a directory."""
    now = datetime.now(UTC)
    found = [(path, one) for path in _files(paths) for one in read_certificates_of(path)]
    if output == "json":
        click.echo(json.dumps(_listing(found, now), indent=2))
    elif short:
        _print_short(found, now)
    else:
        _print_long(found, now)
    return 0


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.crt")) if path.is_dir() else [path]
        if not inside:
            raise PkiError("UMB152", f"found no certificate in {path}", "it has no .crt file", f"ls -l {path}")
        found += inside
    return found


def _print_short(found: list[tuple[Path, Certificate]], now: datetime) -> None:
    several = len({path for path, _ in found}) > 1
    for path, certificate in found:
        line = short_line(certificate, now)
        click.echo(printable(f"{path}: {line}" if several else line))


def _print_long(found: list[tuple[Path, Certificate]], now: datetime) -> None:
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
@click.option("--address", "addresses", multiple=True, metavar="ADDRESS", help="Address that agents dial; repeatable.")
@click.option(
    "--min-left",
    type=at_least,
    metavar="DURATION",
    default="30m",
    show_default=True,
    help="Minimum remaining validity; a certificate with less fails.",
)
@click.option(
    "--only",
    "roles",
    type=click.Choice([role.value for role in TunnelRole]),
    multiple=True,
    help="Check this certificate only; repeatable.",
)
@output_option("table", "json", "junit")
def verify(folder: Path, addresses: tuple[str, ...], min_left: timedelta, roles: tuple[str, ...], output: str) -> int:
    """Check a directory of certificates for server and agents."""
    if not folder.is_dir():
        raise PkiError("UMB156", f"{folder} is not a directory", "verify reads a directory", f"ls -ld {folder}")
    dialled = usable_addresses(addresses)
    facts = read_directory(folder, _roles(folder, roles), dialled)
    now = datetime.now(UTC)
    found = findings(DirectoryInput(facts, now, dialled, min_left))
    # Without color=True, click strips the colours when the output is not a terminal.
    details = {"directory": str(folder)}
    text = report(found, output, kind="PkiReport", suite=SUITE, details=details, groups=HEADINGS)
    click.echo(text, nl=False, color=True)
    _print_first_expiry(facts, now)
    return FINDINGS if has_failed(found) else 0


def _roles(folder: Path, requested: tuple[str, ...]) -> list[TunnelRole]:
    """Return the requested roles; by default server and agent, and client if it has a file."""
    if requested:
        return [role for role in TunnelRole if role.value in requested]
    client = TunnelRole.CLIENT
    has_client = any(os.path.lexists(folder / name) for name in (client.certificate_file, client.key_file))
    return [TunnelRole.SERVER, TunnelRole.AGENT, *([client] if has_client else [])]


def _print_first_expiry(facts: DirectoryFacts, now: datetime) -> None:
    """Print which certificate expires first."""
    certificates = [leaf.certificate for leaf in facts.leaves.values() if leaf.certificate]
    if certificates:
        first = min(certificates, key=lambda one: one.not_after)
        line = f"first to expire: {first.common_name}, {expiry(first, now)}, {moment(first.not_after)}"
        click.echo(printable(line), err=True)
