"""Directories of certificates on disk: read with words for what is wrong, written as a whole or not at all."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from umbilical.fault import HostError, PkiError
from umbilical.host.files import PUBLIC_MODE, SECRET_MODE, write_all
from umbilical.manifests.tree import Asset
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
    """Stop before anything is written. Raises HostError: a file may not be replaced, or it is no directory."""
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
        write_all([Asset(name, content, _mode(name)) for name, content in files.items()], place)
    except OSError as error:
        why = error.strerror or str(error)
        raise PkiError("UMB157", f"cannot write into {folder}; nothing was changed", why, f"ls -ld {place}") from error


def _mode(name: str) -> int:
    return SECRET_MODE if name.endswith(".key") else PUBLIC_MODE
