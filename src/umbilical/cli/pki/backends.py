"""Which back end makes the keys, and the introduction of `openssl` to the room that does not run programs."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from umbilical.fault import HostError, PkiError
from umbilical.host import processes
from umbilical.pki.openssl import Openssl
from umbilical.pki.profiles import Backend

AUTO: Final = "auto"
CRYPTOGRAPHY: Final = "cryptography"
OPENSSL: Final = "openssl"
FIPS_FLAG: Final = Path("/proc/sys/crypto/fips_enabled")
# The slowest step is drawing an RSA key: a second or two on a machine that is busy starting everything else.
TIMEOUT_SECONDS: Final = 60.0


@contextmanager
def chosen_backend(choice: str) -> Iterator[Backend]:
    """Give the back end for `--backend`; what it leaves on disk is gone afterwards.

    Raises:
        PkiError: the library is asked for and not installed.
    """
    name = resolve(choice)
    if name == CRYPTOGRAPHY:
        yield _library()
        return
    with tempfile.TemporaryDirectory(prefix="umbilical-pki-") as scratch:
        yield Openssl(run_openssl, Path(scratch))


def resolve(choice: str, *, fips_flag: Path = FIPS_FLAG) -> str:
    """Turn `auto` into a name, and warn of a choice that a FIPS host does not expect."""
    is_fips, has_library = _is_fips(fips_flag), find_spec(CRYPTOGRAPHY) is not None
    if choice == AUTO:
        return OPENSSL if is_fips or not has_library else CRYPTOGRAPHY
    if choice == CRYPTOGRAPHY and is_fips:
        click.echo("note: this host is in FIPS mode, and cryptography brings an OpenSSL of its own", err=True)
    return choice


def run_openssl(command: Sequence[str], stdin: bytes) -> bytes:
    """Run the program. What it complains about names files and options; keys are on its standard input alone."""
    try:
        return processes.run(command, TIMEOUT_SECONDS, stdin).encode()
    except HostError as fault:
        if fault.code == "UMB803":
            raise
        # Its own "run it by hand" would name files that are gone by then.
        raise _failed(command[1], fault.why) from None


def _library() -> Backend:
    if find_spec(CRYPTOGRAPHY) is None:
        why = "the Python package cryptography is not installed"
        raise PkiError("UMB155", "--backend cryptography cannot be used", why, "use --backend openssl")
    from umbilical.pki.authority import Authority

    return Authority


def _is_fips(flag: Path) -> bool:
    try:
        return flag.read_text().strip() == "1"
    except OSError:
        return False


def _failed(subcommand: str, why: str) -> PkiError:
    lines = [line for line in why.splitlines() if line.strip() and not line.startswith("Using configuration")]
    remedy = f"check the program: {OPENSSL} version -a" + (
        "; OPENSSL_CONF is set" if "OPENSSL_CONF" in os.environ else ""
    )
    return PkiError("UMB154", f"{OPENSSL} {subcommand} failed", " | ".join(lines[:3]) or why, remedy)
