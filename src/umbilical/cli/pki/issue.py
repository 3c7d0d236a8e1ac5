"""`umbilical pki init`, `issue` and `rotate`: make a signer and its certificates, add one, renew them."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from umbilical.bootstrap.install_files import root_authority_from_state
from umbilical.cli.options import FILE
from umbilical.cli.pki.files import read_bytes, read_certificates_of, refuse_existing, write_directory
from umbilical.cli.pki.options import (
    address_option,
    backend_option,
    chosen_backend,
    dir_option,
    key_type_option,
    overwrite_option,
    signer_options,
    signer_pair,
    ttl_option,
)
from umbilical.cli.pki.text import tell_cut
from umbilical.fault import HostError
from umbilical.pki.certificate import Certificate, moment, span
from umbilical.pki.pem import KeyPair, encode_blocks, join_bundle
from umbilical.pki.profiles import Backend, KeyType, usable_addresses
from umbilical.pki.tunnel_set import (
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    Leaf,
    Role,
    TunnelAuthority,
    create_authority,
    issue_set,
    key_type_of,
    load_authority,
)


@click.command()
@dir_option
@address_option
@ttl_option
@key_type_option
@backend_option
@click.option("--ca-cert", type=FILE, help="Sign with this CA instead of a new one.")
@click.option("--ca-key", type=FILE, help="Its key; it is read and not copied.")
@click.option("--from-install-state", "state", type=FILE, help="Sign with the RootCA in .openshift_install_state.json.")
@overwrite_option
def init(**options: Any) -> int:
    """Make a signer and the certificates of a server, its agents and its clients."""
    if not options["addresses"]:
        raise click.UsageError("give every address that agents dial by --address")
    given = _given_authority(options)
    leaves = _leaves(usable_addresses(options["addresses"]), KeyType(options["key_type"]))
    refuse_existing(options["folder"], _names(leaves, given), overwrite=options["overwrite"])
    if given is not None:
        _refuse_other_key(options["folder"] / AUTHORITY_KEY_FILE, given)
    now, ttl = datetime.now(UTC), options["ttl"]
    with chosen_backend(options["backend"]) as backend:
        authority = _authority(backend, given, now, ttl, KeyType(options["key_type"]))
        tell_cut(authority, now, ttl)
        files = {AUTHORITY_FILE: authority.bundle}
        if given is None:
            files[AUTHORITY_KEY_FILE] = authority.signer.pair.key
        files |= issue_set(authority, leaves, now, ttl)
    write_directory(options["folder"], files, overwrite=options["overwrite"])
    _tell(options["folder"], files, authority, now, ttl)
    return 0


def _given_authority(options: dict[str, Any]) -> KeyPair | None:
    certificate, key, state = options["ca_cert"], options["ca_key"], options["state"]
    if (certificate is None) != (key is None):
        raise click.UsageError("--ca-cert and --ca-key go together")
    if state is not None:
        if certificate is not None:
            raise click.UsageError("--from-install-state and --ca-cert exclude each other")
        return root_authority_from_state(read_bytes(state))
    return None if certificate is None else KeyPair(read_bytes(certificate), read_bytes(key))


def _leaves(addresses: tuple[str, ...], key_type: KeyType) -> list[Leaf]:
    return [Leaf(role, key_type, addresses if role is Role.SERVER else ()) for role in Role]


def _names(leaves: list[Leaf], given: KeyPair | None) -> list[str]:
    files = [name for leaf in leaves for name in (leaf.role.certificate_file, leaf.role.key_file)]
    return [AUTHORITY_FILE, *([AUTHORITY_KEY_FILE] if given is None else []), *files]


def _refuse_other_key(path: Path, given: KeyPair) -> None:
    """Keep a signer's key from lying beside another signer's certificate: the next command would take it up."""
    if os.path.lexists(path) and read_bytes(path) != given.key:
        why = "it is not the key of the given CA, which is read and not copied"
        raise HostError("UMB801", f"{path} exists and is not overwritten", why, "move it away, or give another --dir")


def _authority(
    backend: Backend, given: KeyPair | None, now: datetime, ttl: timedelta, key_type: KeyType
) -> TunnelAuthority:
    if given is None:
        return create_authority(backend, now, ttl, key_type)
    return load_authority(backend, given, now)


def _tell(folder: Path, files: dict[str, bytes], authority: TunnelAuthority, now: datetime, ttl: timedelta) -> None:
    left = authority.lifetime(now, ttl)
    click.echo(f"wrote {len(files)} files to {folder}: {', '.join(files)}", err=True)
    advice = f"; keep {folder}/ca.key off the nodes" if AUTHORITY_KEY_FILE in files else ""
    click.echo(f"valid for {span(left)}, until {moment(now + left)}{advice}", err=True)
    click.echo(f"next: umbilical pki verify {folder} --address ADDRESS", err=True)


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
    bundle = join_bundle(authority.bundle, *([encode_blocks(one.encoded for one in kept)] if kept else []))
    write_directory(folder, {AUTHORITY_FILE: bundle, AUTHORITY_KEY_FILE: authority.signer.pair.key}, overwrite=True)
    _tell_steps(folder, kept)
    return 0


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
