"""Writes an asset tree below a directory, completely or not at all; or prints it."""

import os
from pathlib import Path

import click

from umbilical.fault import HostError
from umbilical.host.files import place_of, write_all
from umbilical.manifests.tree import AssetTree


def write_tree(tree: AssetTree, folder: Path, *, overwrite: bool) -> None:
    """Write the tree below `folder`. Raises HostError if a file exists or cannot be written."""
    refuse_existing(tree, folder, overwrite=overwrite)
    place = Path(os.path.abspath(folder))
    try:
        write_all(list(tree), place)
    except OSError as error:
        why = error.strerror or str(error)
        raise HostError(
            "UMB118", f"cannot write below {folder}; nothing was changed", why, f"ls -ld {place}"
        ) from error


def refuse_existing(tree: AssetTree, folder: Path, *, overwrite: bool) -> None:
    """Raise HostError before anything is written."""
    if folder.exists() and not folder.is_dir():
        raise HostError("UMB801", f"{folder} is not a directory", "it exists as a file", "use another --out")
    there = [asset.path for asset in tree if os.path.lexists(place_of(folder, asset))]
    if there and not overwrite:
        why = f"{there[0]} exists" + (f", and {len(there) - 1} more" if there[1:] else "")
        raise HostError("UMB801", f"files in {folder} would be replaced", why, "use another --out, or add --overwrite")


def print_documents(tree: AssetTree) -> None:
    """Print the YAML files, each document after a comment with its path."""
    for asset in tree:
        if asset.path.endswith(".yaml"):
            click.echo(f"---\n# {asset.path}\n{asset.content.decode()}", nl=False)


def print_files(tree: AssetTree) -> None:
    for asset in tree:
        click.echo(f"{asset.mode:04o} {len(asset.content):6} {asset.path}")
