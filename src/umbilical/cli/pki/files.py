"""Directories of certificates: read with explained errors, written completely or not at all."""

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
        raise PkiError("UMB152", f"could not read {path}", why, f"ls -l {path}") from None


def read_certificates_of(path: Path) -> tuple[Certificate, ...]:
    file = read_certificate_file(path)
    if file.trouble:
        remedy = f"ls -l {path}; openssl x509 -noout -text -in {path}"
        raise PkiError("UMB152", f"found no certificate in {path}", file.trouble, remedy)
    return file.certificates


def refuse_existing(folder: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Raise HostError, before anything is written, if a file would be replaced or `folder` is not a directory."""
    if folder.exists() and not folder.is_dir():
        raise HostError("UMB801", f"{folder} is not a directory", "a file has this name", "pass another --dir")
    there = [name for name in names if os.path.lexists(folder / name)]
    if there and not overwrite:
        why = "they may be in use, and a lost key cannot be recreated"
        raise HostError(
            "UMB801", f"{folder} already holds {', '.join(there)}", why, "pass another --dir or --overwrite"
        )


def write_directory(folder: Path, files: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write the files, keys with mode 0600; on failure restore what was there.

    A new directory appears with all its files at once. In an existing directory, all files are written under temporary
    names first and then renamed in the given order.
    """
    refuse_existing(folder, files, overwrite=overwrite)
    place = Path(os.path.abspath(folder))
    try:
        write_all([Asset(name, content, _mode(name)) for name, content in files.items()], place)
    except OSError as error:
        why = error.strerror or str(error)
        raise PkiError("UMB157", f"could not write to {folder}; no file was changed", why, f"ls -ld {place}") from error


def _mode(name: str) -> int:
    return SECRET_MODE if name.endswith(".key") else PUBLIC_MODE
