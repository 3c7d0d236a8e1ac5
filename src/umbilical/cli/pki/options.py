"""Options that several `pki` commands share, the CA they name, and the back end that makes keys."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli.findings import apply_options
from umbilical.cli.options import FILE, duration
from umbilical.cli.pki.files import read_bytes
from umbilical.fault import HostError, PkiError
from umbilical.host import processes
from umbilical.pki.openssl import Openssl
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Backend, KeyType
from umbilical.pki.tunnel_set import AUTHORITY_FILE, AUTHORITY_KEY_FILE

AUTO: Final = "auto"
CRYPTOGRAPHY: Final = "cryptography"
OPENSSL: Final = "openssl"
FIPS_FLAG: Final = Path("/proc/sys/crypto/fips_enabled")
# The slowest step is generating an RSA key: one or two seconds on a busy machine.
TIMEOUT_SECONDS: Final = 60.0


@contextmanager
def chosen_backend(choice: str) -> Iterator[Backend]:
    """Yield the back end of `--backend`; its temporary files are deleted afterwards."""
    if resolve(choice) == CRYPTOGRAPHY:
        from umbilical.pki.authority import Authority

        yield Authority
        return
    with tempfile.TemporaryDirectory(prefix="umbilical-pki-") as scratch:
        yield Openssl(run_openssl, Path(scratch))


def resolve(choice: str, *, fips_flag: Path = FIPS_FLAG) -> str:
    """Resolve `auto`, and warn about `cryptography` on a FIPS host."""
    is_fips = _is_fips(fips_flag)
    if choice == AUTO:
        return OPENSSL if is_fips else CRYPTOGRAPHY
    if choice == CRYPTOGRAPHY and is_fips:
        click.echo("note: this host is in FIPS mode, and cryptography bundles its own OpenSSL", err=True)
    return choice


def run_openssl(command: Sequence[str], stdin: bytes) -> bytes:
    """Run openssl. Its error messages name files and options only: keys go through standard input."""
    try:
        return processes.run(command, TIMEOUT_SECONDS, stdin).encode()
    except HostError as fault:
        if fault.code == "UMB803":
            raise
        # The remedy of `fault` would name temporary files that no longer exist.
        raise _failed(command[1], fault.why) from None


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


FOLDER: Final = click.Path(path_type=Path, file_okay=False)
MIN_TTL: Final = timedelta(minutes=10)
MAX_TTL: Final = timedelta(days=3650)
"""From 2050 on X.509 encodes times differently, and some verifiers cannot read that."""


def lifetime(text: str) -> timedelta:
    found = timedelta(seconds=duration(text))
    if not MIN_TTL <= found <= MAX_TTL:
        raise click.BadParameter(f"{text!r} is not between 10m and 87600h")
    return found


def at_least(text: str) -> timedelta:
    return timedelta(seconds=min(duration(text), MAX_TTL.total_seconds()))


dir_option: Final = click.option("--dir", "folder", type=FOLDER, required=True, help="Directory of the certificates.")
ttl_option: Final = click.option(
    "--ttl",
    type=lifetime,
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="Validity of new certificates.",
)
backend_option: Final = click.option(
    "--backend",
    type=click.Choice([AUTO, CRYPTOGRAPHY, OPENSSL]),
    default=AUTO,
    show_default=True,
    help="Back end that makes keys and signs; auto: openssl on FIPS hosts.",
)
key_type_option: Final = click.option(
    "--key-type",
    type=click.Choice([key_type.value for key_type in KeyType]),
    default=KeyType.RSA_2048.value,
    show_default=True,
    help="Type of the private keys.",
)
overwrite_option: Final = click.option("--overwrite", is_flag=True, help="Replace existing files.")
address_option: Final = click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="ADDRESS",
    help="IPv4 address, IPv6 address or host name that agents dial; repeatable.",
)
_SIGNER: Final = (
    click.option("--ca-cert", type=FILE, help="CA certificate to sign with; default: DIR/ca.crt."),
    click.option("--ca-key", type=FILE, help="Private key of the CA; default: DIR/ca.key."),
)


signer_options: Final = apply_options(_SIGNER)


def signer_pair(options: dict[str, Any]) -> KeyPair:
    """Read the CA that signs for this directory."""
    folder: Path = options["folder"]
    key: Path = options["ca_key"] or folder / AUTHORITY_KEY_FILE
    if options["ca_key"] is None and not os.path.lexists(key):
        raise click.UsageError(f"{key} does not exist; pass the key of {AUTHORITY_FILE} with --ca-key")
    return KeyPair(read_bytes(options["ca_cert"] or folder / AUTHORITY_FILE), read_bytes(key))
