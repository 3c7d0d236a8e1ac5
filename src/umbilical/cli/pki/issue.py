"""`umbilical pki issue`: one more certificate from a signer that exists."""

import re
from datetime import UTC, datetime
from typing import Any, Final

import click

from umbilical.cli.pki.backends import chosen_backend
from umbilical.cli.pki.files import refuse_existing, write_directory
from umbilical.cli.pki.options import (
    address_option,
    backend_option,
    dir_option,
    key_type_option,
    overwrite_option,
    signer_options,
    signer_pair,
    ttl_option,
)
from umbilical.cli.pki.text import tell_cut
from umbilical.pki.profiles import KeyType, usable_addresses
from umbilical.pki.tunnel_set import Leaf, Role, load_authority

# A common name holds 64 characters: RFC 5280, ub-common-name.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def leaf_name(text: str) -> str:
    """Read a name that is a file's as well."""
    if not _NAME.fullmatch(text) or text in ("ca",):
        raise click.BadParameter(f"{text!r}: letters, digits, dots and hyphens, at most 64, and not ca")
    return text


@click.command()
@dir_option
@click.option(
    "--kind", type=click.Choice([role.value for role in Role]), required=True, help="Who will show the certificate."
)
@address_option
@click.option("--name", type=leaf_name, help="Common name, and name of the two files; else those of the kind.")
@ttl_option
@key_type_option
@backend_option
@signer_options
@overwrite_option
def issue(**options: Any) -> int:
    """Make one more certificate from the signer of a directory."""
    leaf = _leaf(options)
    stem = options["name"] or leaf.role.value
    names = (f"{stem}.crt", f"{stem}.key")
    refuse_existing(options["folder"], names, overwrite=options["overwrite"])
    now, ttl = datetime.now(UTC), options["ttl"]
    with chosen_backend(options["backend"]) as backend:
        authority = load_authority(backend, signer_pair(options), now)
        tell_cut(authority, now, ttl)
        pair = authority.issue(leaf, now, ttl)
    files = dict(zip(names, (pair.certificate, pair.key), strict=True))
    write_directory(options["folder"], files, overwrite=options["overwrite"])
    click.echo(f"wrote {names[0]} and {names[1]} to {options['folder']}", err=True)
    return 0


def _leaf(options: dict[str, Any]) -> Leaf:
    role = Role(options["kind"])
    if role is Role.SERVER and not options["addresses"]:
        raise click.UsageError("a server's certificate needs every address that agents dial: --address")
    if role is not Role.SERVER and options["addresses"]:
        raise click.UsageError(f"nobody dials a certificate of kind {role.value}: leave --address out")
    addresses = usable_addresses(options["addresses"])
    return Leaf(role, KeyType(options["key_type"]), addresses, options["name"] or "")
