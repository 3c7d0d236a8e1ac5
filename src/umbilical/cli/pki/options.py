"""Flags that several `pki` commands share, and the authority that they describe."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli.options import FILE, Command, duration
from umbilical.cli.pki.backends import AUTO, CRYPTOGRAPHY, OPENSSL
from umbilical.cli.pki.files import read_bytes
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import AUTHORITY_FILE, AUTHORITY_KEY_FILE

FOLDER: Final = click.Path(path_type=Path, file_okay=False)
MIN_TTL: Final = timedelta(minutes=10)
MAX_TTL: Final = timedelta(days=3650)
"""Past 2049 times are written in another form, which some verifiers read and some do not."""


def lifetime(text: str) -> timedelta:
    """Read how long certificates shall live."""
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
    help="How long certificates live from now on.",
)
backend_option: Final = click.option(
    "--backend",
    type=click.Choice([AUTO, CRYPTOGRAPHY, OPENSSL]),
    default=AUTO,
    show_default=True,
    help="Who draws keys and signs; auto takes openssl on FIPS hosts.",
)
key_type_option: Final = click.option(
    "--key-type",
    type=click.Choice([key_type.value for key_type in KeyType]),
    default=KeyType.RSA_2048.value,
    show_default=True,
    help="Kind of the keys.",
)
overwrite_option: Final = click.option("--overwrite", is_flag=True, help="Replace files that exist.")
address_option: Final = click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="ADDRESS",
    help="IPv4, IPv6 or name that agents dial; may be given again.",
)
_SIGNER: Final = (
    click.option("--ca-cert", type=FILE, help="The signer's certificate, if it is not DIR/ca.crt."),
    click.option("--ca-key", type=FILE, help="The signer's key, if it is not DIR/ca.key."),
)


def signer_options(command: Command) -> Command:
    for option in reversed(_SIGNER):
        command = option(command)
    return command


def signer_pair(options: dict[str, Any]) -> KeyPair:
    """Read the authority that signs in this directory."""
    folder: Path = options["folder"]
    key: Path = options["ca_key"] or folder / AUTHORITY_KEY_FILE
    if options["ca_key"] is None and not os.path.lexists(key):
        raise click.UsageError(f"there is no {key}: give the key that signed {AUTHORITY_FILE} by --ca-key")
    return KeyPair(read_bytes(options["ca_cert"] or folder / AUTHORITY_FILE), read_bytes(key))
