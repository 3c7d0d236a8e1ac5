"""`umbilical bootstrap analyze`: reports why a bootstrap failed, from a log bundle alone."""

from pathlib import Path
from typing import Final

import click

from umbilical.cli.findings import output_option
from umbilical.cli.terminal import has_colour, has_unicode
from umbilical.codes import FINDINGS

_KIND: Final = "BundleAnalysis"


@click.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|DIR")
@output_option("table", "json", "junit")
def analyze(path: Path, output: str) -> int:
    """Find why a bootstrap failed, from its log bundle.

    Reads a log-bundle archive, its unpacked directory, or a copy of /var/log/openshift. Shows the bootkube step
    that failed, then the likely causes, each with evidence and the next command.
    """
    from umbilical.bootstrap.analyze.cause_checks import verdict
    from umbilical.bootstrap.analyze.diagnosis import diagnose
    from umbilical.bootstrap.analyze.facts import gather
    from umbilical.bootstrap.analyze.log_bundle import no_bundle, open_bundle
    from umbilical.checks.check import has_failed
    from umbilical.checks.report import as_json, as_junit, as_table

    bundle = open_bundle(path)
    facts = gather(bundle)
    if not facts.files:
        why = "; ".join(["it contains no service record and no log of a bootstrap node", *facts.notes])
        raise no_bundle(bundle.path, why)
    summary, findings = verdict(facts), diagnose(facts)
    if output == "json":
        details = {"bundle": facts.name, "verdict": summary.as_value(), "notes": facts.notes}
        click.echo(as_json(findings, _KIND, details), nl=False)
    elif output == "junit":
        # Character references work in every terminal encoding.
        click.echo(as_junit(findings, "bootstrap-analyze").encode("ascii", "xmlcharrefreplace"), nl=False)
    else:
        head = [f"{facts.name}: {summary.sentence}", *(f"  incomplete: {note}" for note in facts.notes), "", ""]
        click.echo(_writable("\n".join(head)) + as_table(findings, has_colour(), has_unicode()), nl=False, color=True)
    return FINDINGS if has_failed(findings) else 0


def _writable(text: str) -> str:
    """Escape names of a bundle that the terminal cannot show."""
    return text if has_unicode() else text.encode("ascii", "backslashreplace").decode()
