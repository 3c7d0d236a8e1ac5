"""Directories of certificates on disk: read with words for what is wrong, written as a whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from umbilical.fault import HostError, PkiError
from umbilical.host.files import PUBLIC_MODE, SECRET_MODE, make_directory, write_file
from umbilical.pki.certificate import Certificate
from umbilical.pki.directory import read_certificate_file


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise PkiError("UMB152", f"cannot read {path}", why, f"look at it: ls -l {path}") from None


def read_certificates_of(path: Path) -> tuple[Certificate, ...]:
    file = read_certificate_file(path)
    if file.trouble:
        remedy = f"look at it: ls -l {path}; openssl x509 -noout -text -in {path}"
        raise PkiError("UMB152", f"no certificate in {path}", file.trouble, remedy)
    return file.certificates


def refuse_existing(folder: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Stop before anything is drawn or written.

    Raises:
        HostError: a file is in its place and may not be replaced, or the directory is none.
    """
    if folder.exists() and not folder.is_dir():
        raise HostError("UMB801", f"{folder} exists and is no directory", "files belong into it", "give another --dir")
    there = [name for name in names if os.path.lexists(folder / name)]
    if there and not overwrite:
        why = "they may be in use, and a key that is lost cannot be made again"
        raise HostError("UMB801", f"{folder} already holds {', '.join(there)}", why, "another --dir, or --overwrite")


def write_directory(folder: Path, files: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Put the files in place, keys 0600. All of them are written before the first gets its name.

    A directory that is new appears at once with everything in it. In one that exists, files are renamed in the order
    given; should that fail, those before are put back.
    """
    refuse_existing(folder, files, overwrite=overwrite)
    place = Path(os.path.abspath(folder))
    try:
        _stage_and_move(place, files)
    except OSError as error:
        why = error.strerror or str(error)
        raise PkiError("UMB157", f"cannot write into {folder}; nothing was changed", why, f"ls -ld {place}") from error


def _stage_and_move(folder: Path, files: Mapping[str, bytes]) -> None:
    # On the same file system in either case, so that a rename is all that is left to do.
    beside = folder if folder.exists() else make_directory(folder.parent)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
    try:
        for name, content in files.items():
            write_file(stage / name, content, SECRET_MODE if name.endswith(".key") else PUBLIC_MODE)
        if folder.exists():
            _move_all(stage, folder, list(files))
        else:
            stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _move_all(stage: Path, folder: Path, names: list[str]) -> None:
    old = stage / "old"
    old.mkdir()
    moved: list[str] = []
    try:
        for name in names:
            if os.path.lexists(folder / name):
                os.link(folder / name, old / name, follow_symlinks=False)
            moved.append(name)
            (stage / name).replace(folder / name)
    except BaseException:
        for name in reversed(moved):
            _put_back(old / name, folder / name)
        raise


def _put_back(kept: Path, place: Path) -> None:
    if os.path.lexists(kept):
        kept.replace(place)
    else:
        place.unlink(missing_ok=True)
