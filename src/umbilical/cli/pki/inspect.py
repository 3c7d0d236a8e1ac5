"""`umbilical pki inspect`: what is in certificate files, in a line or at length."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from umbilical.checks.report import API_VERSION, printable
from umbilical.cli.pki.files import read_certificates_of
from umbilical.cli.pki.text import as_value, long_lines, short_line
from umbilical.fault import PkiError
from umbilical.pki.certificate import Certificate


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE…")
@click.option("--short", is_flag=True, help="One line for each certificate.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the answer.")
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
