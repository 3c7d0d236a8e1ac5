"""`umbilical bootstrap undo`: removes our tunnel from a bootstrap.ign."""

from pathlib import Path

import click

from umbilical.cli.bootstrap.file import read_source, source_options, target_of, target_options


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
