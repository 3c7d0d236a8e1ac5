"""An asset tree on disk: below a directory, with its modes, all of it or nothing."""

import os
from pathlib import Path

from umbilical.fault import HostError
from umbilical.host.files import place_of, write_all
from umbilical.manifests.tree import AssetTree


def write_tree(tree: AssetTree, folder: Path, *, overwrite: bool) -> None:
    """Write every file of the tree to its path below `folder`.

    Raises:
        HostError: a file is there and may not be replaced, or the directory cannot be written to.
    """
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
