"""`umbilical pki rotate`: new certificates from the same signer, or a new signer beside the old one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from umbilical.cli.pki.backends import chosen_backend
from umbilical.cli.pki.files import read_certificates_of, write_directory
from umbilical.cli.pki.options import backend_option, dir_option, signer_options, signer_pair, ttl_option
from umbilical.cli.pki.text import moment, span, tell_cut
from umbilical.pki.certificate import Certificate
from umbilical.pki.pem import encode_blocks, join_bundle
from umbilical.pki.tunnel_set import (
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    Leaf,
    Role,
    create_authority,
    issue_set,
    key_type_of,
    load_authority,
)


@click.command()
@dir_option
@click.option(
    "--only",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    help="Renew this certificate only; may be given again.",
)
@click.option("--signer", "renew_signer", is_flag=True, help="Make a new signer and trust the old one beside it.")
@ttl_option
@backend_option
@signer_options
def rotate(**options: Any) -> int:
    """Renew certificates from the same signer, or the signer itself with an overlap."""
    if not options["renew_signer"]:
        return _renew_leaves(options)
    if options["roles"] or options["ca_cert"] or options["ca_key"]:
        raise click.UsageError("--signer makes a new signer and nothing else: leave --only and --ca-… out")
    return _renew_signer(options)


def _renew_leaves(options: dict[str, Any]) -> int:
    folder, now, ttl = options["folder"], datetime.now(UTC), options["ttl"]
    leaves = [_successor(folder, role) for role in _roles(folder, options["roles"])]
    with chosen_backend(options["backend"]) as backend:
        authority = load_authority(backend, signer_pair(options), now)
        tell_cut(authority, now, ttl)
        files = issue_set(authority, leaves, now, ttl)
    write_directory(folder, files, overwrite=True)
    left = authority.lifetime(now, ttl)
    click.echo(f"renewed {', '.join(files)} in {folder}: {span(left)}, until {moment(now + left)}", err=True)
    if left < ttl:
        click.echo(f"for longer lives renew the signer: umbilical pki rotate --dir {folder} --signer", err=True)
    click.echo(
        "next: copy them to where they are used; umbilical's server and agents reload them by themselves", err=True
    )
    return 0


def _renew_signer(options: dict[str, Any]) -> int:
    folder: Path = options["folder"]
    now = datetime.now(UTC)
    old = read_certificates_of(folder / AUTHORITY_FILE)
    with chosen_backend(options["backend"]) as backend:
        authority = create_authority(backend, now, options["ttl"], key_type_of(old[0]))
    kept = [one for one in old if one.not_after > now]
    bundle = join_bundle(authority.bundle, *([_pem(kept)] if kept else []))
    write_directory(folder, {AUTHORITY_FILE: bundle, AUTHORITY_KEY_FILE: authority.signer.pair.key}, overwrite=True)
    _tell_steps(folder, kept)
    return 0


def _pem(certificates: list[Certificate]) -> bytes:
    return encode_blocks(one.encoded for one in certificates)


def _roles(folder: Path, asked: tuple[str, ...]) -> list[Role]:
    """Take what is asked for, else what is there."""
    there = [role for role in Role if (folder / role.certificate_file).exists()]
    chosen = [role for role in Role if role.value in asked] if asked else there
    if not chosen:
        raise click.UsageError(f"{folder} holds no certificate to renew: begin with umbilical pki init")
    return chosen


def _successor(folder: Path, role: Role) -> Leaf:
    old = read_certificates_of(folder / role.certificate_file)[0]
    return Leaf(role, key_type_of(old), old.names if role is Role.SERVER else (), old.common_name)


def _tell_steps(folder: Path, kept: list[Certificate]) -> None:
    click.echo(
        f"{folder}/ca.crt now trusts the new signer and {len(kept)} before it; certificates are as they were", err=True
    )
    click.echo(
        "next, in this order, since each side must trust a signer before the other shows its certificates:", err=True
    )
    click.echo(
        f"  1. copy {folder}/ca.crt to the server and to every agent (Secret konnectivity-agent-certs)", err=True
    )
    click.echo(f"  2. umbilical pki rotate --dir {folder}", err=True)
    click.echo(
        "  3. copy the new certificates and keys; umbilical's server and agents reload them by themselves", err=True
    )
