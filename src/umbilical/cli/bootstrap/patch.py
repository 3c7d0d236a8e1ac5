"""`umbilical bootstrap patch`: puts the tunnel into an installer's bootstrap.ign, and proves it before writing."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.bootstrap.bootstrap_file import BootstrapFile
from umbilical.cli.bootstrap.file import (
    kibibytes,
    print_warnings,
    read_source,
    source_options,
    target_of,
    target_options,
    write_result,
)
from umbilical.cli.bootstrap.options import authority_options, refuse_authority, spec_from, spec_options
from umbilical.cli.bootstrap.plan import needed_port
from umbilical.cli.terminal import has_unicode
from umbilical.fault import Fault
from umbilical.host.commands import syntax_complaint

if TYPE_CHECKING:
    from umbilical.bootstrap.patch.patch import Patch
    from umbilical.bootstrap.patch.plan import Plan
    from umbilical.checks.check import Finding

SHOWN_FAILURES: Final = 3


@click.command()
@source_options
@target_options
@click.option("--platform", metavar="NAME", help="Whose limits and firewall count; else what the config says.")
@authority_options
@spec_options
def patch(
    file: Path | None,
    directory: Path | None,
    out: Path | None,
    in_place: bool,
    platform: str | None,
    **options: Any,
) -> None:
    """Put the tunnel into FILE (or the bootstrap.ign of --dir), after `create ignition-configs` and before
    `create cluster`.

    The result goes to --out, or in the file's own place with --in-place or --dir; mode and owner stay. `undo` gives
    the original back byte for byte.
    """
    from umbilical.bootstrap.patch.patch import patch as patched

    spec = spec_from(refuse_authority(options))
    source = read_source(file, directory)
    target = target_of(source, out, in_place)
    made = patched(source.document(), spec, platform or source.platform())
    is_bash_checked = _check(source, made)
    if made.document.content != source.content or target != source.path:
        write_result(source, target, made.document.content)
    _tell(source, target, made.plan, is_bash_checked)


def _check(source: BootstrapFile, made: "Patch") -> bool:
    """Verify the result as anybody else would. What fails by the patch is our fault, and nothing is written then.

    Returns whether there is a bash to ask.
    """
    is_bash_there = syntax_complaint(b":\n") is None
    failures = _failures(made.document.content, made.plan, is_bash_there)
    if not failures:
        return is_bash_there
    old = {finding.id for finding in _failures(source.content, made.plan, is_bash_there)}
    ours = [f"{finding.id} {finding.evidence}" for finding in failures if finding.id not in old]
    if ours:
        remedy = "report it, with the output of: umbilical bootstrap plan --show-anchors FILE"
        why = "; ".join(ours[:SHOWN_FAILURES])
        raise Fault("UMB132", "the patched config does not pass verify; nothing was written", why, remedy)
    for finding in failures:
        click.echo(f"warning: {finding.id} {finding.evidence} (before the patch, too)", err=True)
    return is_bash_there


def _failures(content: bytes, planned: "Plan", is_bash_there: bool) -> "list[Finding]":
    from umbilical.bootstrap.verify.catalogue import verify
    from umbilical.bootstrap.verify.facts import BootstrapFacts
    from umbilical.checks.check import Outcome

    facts = BootstrapFacts(
        content,
        platform=planned.platform,
        shape=planned.spec.shape,
        mode=planned.spec.mode,
        bash_syntax=syntax_complaint if is_bash_there else None,
    )
    return [finding for finding in verify(facts) if finding.outcome is Outcome.FAILED]


def _tell(source: BootstrapFile, target: Path, planned: "Plan", is_bash_checked: bool) -> None:
    """Sum up on standard error; there is no data for standard output."""
    mark = "✓" if has_unicode() else "[ok]"
    sizes = f"{kibibytes(planned.size_before)} -> {kibibytes(planned.size_after)}"
    facts = [f"bootkube.sh of {planned.release} recognised", _changes(planned), "verified"]
    click.echo("  ".join(f"{mark} {fact}" for fact in facts) + f"  {sizes}", err=True)
    if not is_bash_checked:
        click.echo("warning: there is no bash here, so `bash -n` was not run on the scripts", err=True)
    for note in planned.notes():
        click.echo(f"note: {note}", err=True)
    click.echo(f"wrote {target}" if not planned.changes_nothing else f"{target} is as it should be", err=True)
    for line in needed_port(planned, source):
        click.echo(line, err=True)
    print_warnings(source)


def _changes(planned: "Plan") -> str:
    added, changed, removed = (planned.count(sign) for sign in "+~-")
    return f"{added} files added, {changed} changed" + (f", {removed} removed" if removed else "")
