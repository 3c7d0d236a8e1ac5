"""`umbilical bootstrap patch` adds the tunnel to an installer's bootstrap.ign and verifies the result before writing;
`umbilical bootstrap undo` removes it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umbilical.cli.bootstrap.file import (
    kibibytes,
    platform_option,
    print_warnings,
    read_source,
    source_options,
    target_of,
    target_options,
)
from umbilical.cli.bootstrap.options import authority_options, refuse_authority, spec_from, spec_options
from umbilical.cli.bootstrap.plan import needed_port
from umbilical.cli.terminal import has_unicode

if TYPE_CHECKING:
    from umbilical.bootstrap.bootstrap_file import BootstrapFile, PatchedFile
    from umbilical.bootstrap.patch.plan import Plan


@click.command()
@source_options
@target_options
@platform_option
@authority_options
@spec_options
def patch(
    file: Path | None, directory: Path | None, out: Path | None, in_place: bool, platform: str | None, **options: Any
) -> None:
    """Add the tunnel to an installer's bootstrap.ign.

    Run it after `create ignition-configs` and before `create cluster`. The result goes to --out, or replaces the file
    with --in-place or --dir; mode and owner stay. `undo` restores the original byte for byte.
    """
    from umbilical.bootstrap.bootstrap_file import patch_file

    spec = spec_from(refuse_authority(options))
    source = read_source(file, directory)
    target = target_of(source, out, in_place)
    _print_summary(source, target, patch_file(source, target, spec, platform))


def _print_summary(source: "BootstrapFile", target: Path, patched: "PatchedFile") -> None:
    """Print on standard error; there is no data for standard output."""
    planned = patched.plan
    for finding in patched.older_failures:
        click.echo(f"warning: {finding.id} {finding.evidence} (also before the patch)", err=True)
    mark = "✓" if has_unicode() else "[ok]"
    sizes = f"{kibibytes(planned.size_before)} -> {kibibytes(planned.size_after)}"
    older = ", ".join(finding.id for finding in patched.older_failures)
    verified = f"verified, except {older}" if older else "verified"
    facts = [f"bootkube.sh of {planned.release} recognised", _changes(planned), verified]
    click.echo("  ".join(f"{mark} {fact}" for fact in facts) + f"  {sizes}", err=True)
    if not patched.is_bash_checked:
        click.echo("warning: bash is not installed here, so `bash -n` did not check the scripts", err=True)
    for note in planned.notes():
        click.echo(f"note: {note}", err=True)
    is_same = planned.changes_nothing and target == source.path
    click.echo(f"{target} is already up to date" if is_same else f"wrote {target}", err=True)
    for line in needed_port(planned, source):
        click.echo(line, err=True)
    print_warnings(source)


def _changes(planned: "Plan") -> str:
    added, changed, removed = (planned.count(sign) for sign in "+~-")
    return f"{added} files added, {changed} changed" + (f", {removed} removed" if removed else "")


@click.command()
@source_options
@target_options
def undo(file: Path | None, directory: Path | None, out: Path | None, in_place: bool) -> None:
    """Remove the tunnel from a patched bootstrap.ign.

    Reads FILE or the bootstrap.ign of --dir and restores it byte for byte as it was before `patch`. Changes of others
    since then are kept and shown; a changed line of the patch itself is an error.
    """
    from umbilical.bootstrap.patch.patch import undo as undone
    from umbilical.bootstrap.patch.receipt import find_receipt

    source = read_source(file, directory)
    target = target_of(source, out, in_place)
    document = source.document()
    restored = undone(document)
    source.write(target, restored.content)
    differences = find_receipt(document.config).differences(restored.config, restored.content)
    if not differences:
        click.echo(f"wrote {target}: byte for byte as it was before the patch", err=True)
        return
    click.echo(f"wrote {target}: the tunnel is removed; other changes since the patch are kept:", err=True)
    for difference in differences:
        click.echo(f"  {difference}", err=True)
