"""An asset tree on disk: below a directory, with its modes, all of it or nothing."""

import os
import shutil
import tempfile
from pathlib import Path

from umbilical.assets.tree import Asset, AssetTree
from umbilical.host.errors import HostError
from umbilical.host.files import make_directory, write_file


def write_tree(tree: AssetTree, folder: Path, *, overwrite: bool) -> None:
    """Write every file of the tree to its path below `folder`.

    All are written beside it before the first gets its name; should a rename fail, those before are put back.

    Raises:
        HostError: a file is there and may not be replaced, or the directory cannot be written to.
    """
    refuse_existing(tree, folder, overwrite=overwrite)
    place = Path(os.path.abspath(folder))
    try:
        _stage_and_move(tree, place)
    except OSError as error:
        why = error.strerror or str(error)
        raise HostError(
            "UMB118", f"cannot write below {folder}; nothing was changed", why, f"ls -ld {place}"
        ) from error


def _below(folder: Path, asset: Asset) -> Path:
    return folder / asset.path.lstrip("/")


def refuse_existing(tree: AssetTree, folder: Path, *, overwrite: bool) -> None:
    """Stop before anything is written, here or elsewhere on its behalf."""
    if folder.exists() and not folder.is_dir():
        raise HostError("UMB801", f"{folder} exists and is no directory", "files belong into it", "give another --out")
    there = [asset.path for asset in tree if os.path.lexists(_below(folder, asset))]
    if there and not overwrite:
        why = f"{there[0]} is there" + (f", and {len(there) - 1} more" if there[1:] else "")
        raise HostError("UMB801", f"{folder} already holds such files", why, "give another --out, or add --overwrite")


def _stage_and_move(tree: AssetTree, folder: Path) -> None:
    # On the same file system in either case, so that a rename is all that is left to do.
    beside = folder if folder.exists() else make_directory(folder.parent)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
    try:
        for asset in tree:
            make_directory(_below(stage, asset).parent)
            write_file(_below(stage, asset), asset.content, asset.mode)
        if folder.exists():
            _move_all(tree, stage, folder)
        else:
            stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _move_all(tree: AssetTree, stage: Path, folder: Path) -> None:
    old = make_directory(stage / ".old")
    moved: list[tuple[Path, Path]] = []
    try:
        for number, asset in enumerate(tree):
            place = _below(folder, asset)
            kept = old / str(number)
            make_directory(place.parent)
            if os.path.lexists(place):
                os.link(place, kept, follow_symlinks=False)
            moved.append((kept, place))
            _below(stage, asset).replace(place)
    except BaseException:
        for kept, place in reversed(moved):
            _put_back(kept, place)
        raise


def _put_back(kept: Path, place: Path) -> None:
    if os.path.lexists(kept):
        kept.replace(place)
    elif os.path.lexists(place):
        place.unlink()
