"""`umbilical bootstrap undo`: removes our tunnel from a bootstrap.ign."""

from pathlib import Path

import click

from umbilical.cli.bootstrap.file import read_source, source_options, target_of, target_options


@click.command()
@source_options
@target_options
def undo(file: Path | None, directory: Path | None, out: Path | None, in_place: bool) -> None:
    """Remove the tunnel from a patched bootstrap.ign.

    Reads FILE or the bootstrap.ign of --dir and restores it byte for byte as it was before `patch`.
    """
    from umbilical.bootstrap.patch.patch import undo as undone
    from umbilical.bootstrap.patch.receipt import find_receipt

    source = read_source(file, directory)
    target = target_of(source, out, in_place)
    document = source.document()
    restored = undone(document)
    source.write(target, restored.content)
    if find_receipt(document.config).restores(restored.content):
        click.echo(f"wrote {target}: byte for byte as it was before the patch", err=True)
    else:
        what = "the tunnel is removed; other changes since the patch, formatting included, are kept"
        click.echo(f"wrote {target}: {what}", err=True)
