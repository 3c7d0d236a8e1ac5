"""Directories as `umbilical pki init` makes them, and the real openssl. ECDSA, since a run draws dozens of keys."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from umbilical.cli.pki.files import write_directory
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import DAY, TunnelAuthority, TunnelLeaf, TunnelRole, create_authority, issue_set

ADDRESS: Final = "10.0.0.9"


def now() -> datetime:
    return datetime.now(UTC)


def new_authority(when: datetime | None = None, lifetime: timedelta = DAY) -> TunnelAuthority:
    return create_authority(Authority, when or now(), lifetime, KeyType.ECDSA_P256)


def make_files(
    authority: TunnelAuthority,
    when: datetime | None = None,
    lifetime: timedelta = DAY,
    addresses: Sequence[str] = (ADDRESS,),
) -> dict[str, bytes]:
    leaves = [
        TunnelLeaf(role, KeyType.ECDSA_P256, tuple(addresses) if role is TunnelRole.SERVER else ())
        for role in TunnelRole
    ]
    signer = {"ca.crt": authority.bundle, "ca.key": authority.signer.pair.key}
    return {**signer, **issue_set(authority, leaves, when or now(), lifetime)}


def make_directory(folder: Path, addresses: Sequence[str] = (ADDRESS,)) -> Path:
    write_directory(folder, make_files(new_authority(), addresses=addresses), overwrite=False)
    return folder


def run_openssl(command: Sequence[str], stdin: bytes) -> bytes:
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def openssl_verifies(authority: Path, leaf: Path, *options: str) -> bool:
    command = ["openssl", "verify", "-x509_strict", "-CAfile", str(authority), *options, str(leaf)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
