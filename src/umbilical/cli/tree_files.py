"""An asset tree for the user: below a directory with its modes, all of it or nothing; or printed."""

import os
from pathlib import Path

import click

from umbilical.fault import HostError
from umbilical.host.files import place_of, write_all
from umbilical.manifests.tree import AssetTree


def write_tree(tree: AssetTree, folder: Path, *, overwrite: bool) -> None:
    """Write the tree below `folder`. Raises HostError: a file may not be replaced, or none can be written."""
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
    """Stop before anything is written, here or elsewhere on its behalf."""
    if folder.exists() and not folder.is_dir():
        raise HostError("UMB801", f"{folder} exists and is no directory", "files belong into it", "give another --out")
    there = [asset.path for asset in tree if os.path.lexists(place_of(folder, asset))]
    if there and not overwrite:
        why = f"{there[0]} is there" + (f", and {len(there) - 1} more" if there[1:] else "")
        raise HostError("UMB801", f"{folder} already holds such files", why, "give another --out, or add --overwrite")


def print_documents(tree: AssetTree) -> None:
    """Print what is YAML, each document under the path that it is for."""
    for asset in tree:
        if asset.path.endswith(".yaml"):
            click.echo(f"---\n# {asset.path}\n{asset.content.decode()}", nl=False)


def print_files(tree: AssetTree) -> None:
    for asset in tree:
        click.echo(f"{asset.mode:04o} {len(asset.content):6} {asset.path}")
