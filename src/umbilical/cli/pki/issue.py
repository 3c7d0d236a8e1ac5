"""`umbilical pki init`, `issue` and `rotate`: create a signer and its certificates, issue one more, renew them."""

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
from umbilical.cli.pki.text import print_shortened
from umbilical.fault import HostError
from umbilical.pki.certificate import Certificate, moment, span
from umbilical.pki.pem import KeyPair, encode_blocks, join_bundle
from umbilical.pki.profiles import Backend, KeyType, usable_addresses
from umbilical.pki.tunnel_set import (
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    TunnelAuthority,
    TunnelLeaf,
    TunnelRole,
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
@click.option("--ca-cert", type=FILE, help="CA certificate to sign with; default: a new CA.")
@click.option("--ca-key", type=FILE, help="Private key of --ca-cert; not copied.")
@click.option("--from-install-state", "state", type=FILE, help="File .openshift_install_state.json; its RootCA signs.")
@overwrite_option
def init(**options: Any) -> int:
    """Create a CA and certificates for server, agents and clients."""
    if not options["addresses"]:
        raise click.UsageError("pass --address for every address that agents dial")
    given = _given_authority(options)
    leaves = _leaves(usable_addresses(options["addresses"]), KeyType(options["key_type"]))
    refuse_existing(options["folder"], _names(leaves, given), overwrite=options["overwrite"])
    if given is not None:
        _refuse_other_key(options["folder"] / AUTHORITY_KEY_FILE, given)
    now, ttl = datetime.now(UTC), options["ttl"]
    with chosen_backend(options["backend"]) as backend:
        authority = _authority(backend, given, now, ttl, KeyType(options["key_type"]))
        print_shortened(authority, now, ttl)
        files = {AUTHORITY_FILE: authority.bundle}
        if given is None:
            files[AUTHORITY_KEY_FILE] = authority.signer.pair.key
        files |= issue_set(authority, leaves, now, ttl)
    write_directory(options["folder"], files, overwrite=options["overwrite"])
    _report(options["folder"], files, authority, now, ttl)
    return 0


def _given_authority(options: dict[str, Any]) -> KeyPair | None:
    certificate, key, state = options["ca_cert"], options["ca_key"], options["state"]
    if (certificate is None) != (key is None):
        raise click.UsageError("pass --ca-cert and --ca-key together")
    if state is not None:
        if certificate is not None:
            raise click.UsageError("--from-install-state and --ca-cert exclude each other")
        return root_authority_from_state(read_bytes(state))
    return None if certificate is None else KeyPair(read_bytes(certificate), read_bytes(key))


def _leaves(addresses: tuple[str, ...], key_type: KeyType) -> list[TunnelLeaf]:
    return [TunnelLeaf(role, key_type, addresses if role is TunnelRole.SERVER else ()) for role in TunnelRole]


def _names(leaves: list[TunnelLeaf], given: KeyPair | None) -> list[str]:
    files = [name for leaf in leaves for name in (leaf.role.certificate_file, leaf.role.key_file)]
    return [AUTHORITY_FILE, *([AUTHORITY_KEY_FILE] if given is None else []), *files]


def _refuse_other_key(path: Path, given: KeyPair) -> None:
    """Refuse to leave another CA's key beside the new ca.crt: the next command would sign with it."""
    if os.path.lexists(path) and read_bytes(path) != given.key:
        why = "it is not the key of the given CA"
        remedy = f"mv {path} {path}.old, or pass another --dir"
        raise HostError("UMB801", f"{path} exists and was not overwritten", why, remedy)


def _authority(
    backend: Backend, given: KeyPair | None, now: datetime, ttl: timedelta, key_type: KeyType
) -> TunnelAuthority:
    if given is None:
        return create_authority(backend, now, ttl, key_type)
    return load_authority(backend, given, now)


def _report(folder: Path, files: dict[str, bytes], authority: TunnelAuthority, now: datetime, ttl: timedelta) -> None:
    left = authority.lifetime(now, ttl)
    click.echo(f"wrote {len(files)} files to {folder}: {', '.join(files)}", err=True)
    advice = f"; keep {folder}/ca.key off the nodes" if AUTHORITY_KEY_FILE in files else ""
    click.echo(f"valid for {span(left)}, until {moment(now + left)}{advice}", err=True)
    click.echo(f"next: umbilical pki verify {folder} --address ADDRESS", err=True)


# A common name holds 64 characters: RFC 5280, ub-common-name.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def leaf_name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in ("ca",):
        raise click.BadParameter(f"{text!r}: use up to 64 letters, digits, dots, hyphens, underscores; ca is reserved")
    return text


@click.command()
@dir_option
@click.option(
    "--kind", type=click.Choice([role.value for role in TunnelRole]), required=True, help="Holder of the certificate."
)
@address_option
@click.option("--name", type=leaf_name, metavar="NAME", help="Common name and file base name; default: from --kind.")
@ttl_option
@key_type_option
@backend_option
@signer_options
@overwrite_option
def issue(**options: Any) -> int:
    """Issue one more certificate from a directory's CA."""
    leaf = _leaf(options)
    stem = options["name"] or leaf.role.value
    names = (f"{stem}.crt", f"{stem}.key")
    refuse_existing(options["folder"], names, overwrite=options["overwrite"])
    now, ttl = datetime.now(UTC), options["ttl"]
    with chosen_backend(options["backend"]) as backend:
        authority = load_authority(backend, signer_pair(options), now)
        print_shortened(authority, now, ttl)
        pair = authority.issue(leaf, now, ttl)
    files = dict(zip(names, (pair.certificate, pair.key), strict=True))
    write_directory(options["folder"], files, overwrite=options["overwrite"])
    click.echo(f"wrote {names[0]} and {names[1]} to {options['folder']}", err=True)
    return 0


def _leaf(options: dict[str, Any]) -> TunnelLeaf:
    role = TunnelRole(options["kind"])
    if role is TunnelRole.SERVER and not options["addresses"]:
        raise click.UsageError("--kind server needs --address for every address that agents dial")
    if role is not TunnelRole.SERVER and options["addresses"]:
        raise click.UsageError(f"--address is for --kind server only, not for {role.value}")
    addresses = usable_addresses(options["addresses"])
    return TunnelLeaf(role, KeyType(options["key_type"]), addresses, options["name"] or "")


@click.command()
@dir_option
@click.option(
    "--only",
    "roles",
    type=click.Choice([role.value for role in TunnelRole]),
    multiple=True,
    help="Renew this certificate only; repeatable.",
)
@click.option("--signer", "renew_signer", is_flag=True, help="Create a new CA; ca.crt keeps the old one beside it.")
@ttl_option
@backend_option
@signer_options
def rotate(**options: Any) -> int:
    """Renew certificates, or the CA itself with --signer."""
    if not options["renew_signer"]:
        return _renew_leaves(options)
    if options["roles"] or options["ca_cert"] or options["ca_key"]:
        raise click.UsageError("--signer excludes --only, --ca-cert and --ca-key")
    return _renew_signer(options)


def _renew_leaves(options: dict[str, Any]) -> int:
    folder, now, ttl = options["folder"], datetime.now(UTC), options["ttl"]
    leaves = [_successor(folder, role) for role in _roles(folder, options["roles"])]
    with chosen_backend(options["backend"]) as backend:
        authority = load_authority(backend, signer_pair(options), now)
        print_shortened(authority, now, ttl)
        files = issue_set(authority, leaves, now, ttl)
    write_directory(folder, files, overwrite=True)
    left = authority.lifetime(now, ttl)
    click.echo(f"renewed {', '.join(files)} in {folder}: {span(left)}, until {moment(now + left)}", err=True)
    if left < ttl:
        click.echo(f"the CA limits the validity; renew it: umbilical pki rotate --dir {folder} --signer", err=True)
    click.echo("next: copy the files to server and agents, which reload them without a restart", err=True)
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
    _print_steps(folder, kept)
    return 0


def _roles(folder: Path, requested: tuple[str, ...]) -> list[TunnelRole]:
    """Return the requested roles; by default those whose certificates exist."""
    there = [role for role in TunnelRole if (folder / role.certificate_file).exists()]
    chosen = [role for role in TunnelRole if role.value in requested] if requested else there
    if not chosen:
        raise click.UsageError(f"{folder} holds no certificate to renew; create them: umbilical pki init")
    return chosen


def _successor(folder: Path, role: TunnelRole) -> TunnelLeaf:
    old = read_certificates_of(folder / role.certificate_file)[0]
    return TunnelLeaf(role, key_type_of(old), old.names if role is TunnelRole.SERVER else (), old.common_name)


def _print_steps(folder: Path, kept: list[Certificate]) -> None:
    click.echo(f"{folder}/ca.crt now holds the new CA and {len(kept)} old; no certificate was renewed yet", err=True)
    click.echo("next, in this order (each side must trust the new CA before the other side uses it):", err=True)
    click.echo(
        f"  1. copy {folder}/ca.crt to the server and to every agent (Secret konnectivity-agent-certs)", err=True
    )
    click.echo(f"  2. umbilical pki rotate --dir {folder}", err=True)
    click.echo(
        "  3. copy the new certificates and keys to server and agents, which reload them without a restart", err=True
    )
