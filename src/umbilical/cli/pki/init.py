"""`umbilical pki init`: a signer, and the certificates of a server, its agents and its clients."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from umbilical.bootstrap.install_files import root_authority_from_state
from umbilical.cli.options import FILE
from umbilical.cli.pki.backends import chosen_backend
from umbilical.cli.pki.files import read_bytes, refuse_existing, write_directory
from umbilical.cli.pki.options import (
    address_option,
    backend_option,
    dir_option,
    key_type_option,
    overwrite_option,
    ttl_option,
)
from umbilical.cli.pki.text import moment, span, tell_cut
from umbilical.fault import HostError
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Backend, KeyType, usable_addresses
from umbilical.pki.tunnel_set import (
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    Leaf,
    Role,
    TunnelAuthority,
    create_authority,
    issue_set,
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
