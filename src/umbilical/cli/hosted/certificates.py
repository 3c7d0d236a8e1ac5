"""Certificates for `hosted render`: made, or taken from a directory that keeps them and renewed there."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.pki.files import read_bytes, write_directory

if TYPE_CHECKING:
    from umbilical.hosted.objects.spec import HostedSpec
    from umbilical.hosted.pki.certificate_set import HostedSet, Renewal, Terms

_ENDINGS: Final = (".crt", ".key")
_ROTATION: Final = (
    "next, in this order, since a signer must be trusted before anybody shows its certificates:",
    "  1. apply this in both clusters, and on nodes with static pods",
    "  2. render again, which signs certificates with the new signers, and apply that",
    "  3. render with --retire-signers, and apply that",
)


def renewed(
    spec: "HostedSpec", folder: Path | None, backend: str, *, rotate: bool, retire: bool, now: datetime | None = None
) -> "Renewal":
    """Take up what the directory holds, and make what is missing or no longer right. Nothing is written.

    Raises:
        PkiError: what is there cannot be taken up.
    """
    from umbilical.cli.pki.backends import chosen_backend
    from umbilical.hosted.pki.certificate_set import Names, renew

    names = Names(spec.frontend_names, spec.agent_listener_names)
    existing = None if folder is None else _kept(folder)
    with chosen_backend(backend) as signing:
        moment = now or datetime.now(UTC)
        return renew(existing, names, _terms(spec), moment, signing, rotate=rotate, retire=retire)


def keep(renewal: "Renewal", folder: Path) -> None:
    """Write the directory, if there is something new; keys are their owner's alone."""
    if renewal.changes:
        write_directory(folder, renewal.set.files(), overwrite=True)


def tell(renewal: "Renewal", folder: Path | None) -> None:
    """Say on standard error what was made, and what that asks for."""
    from umbilical.hosted.pki.certificate_set import ROTATED

    for change in renewal.changes:
        click.echo(f"{'made' if change.is_new else 'changed'} {change.id}: {change.why}", err=True)
    if folder is None:
        click.echo("note: nobody keeps the signers' keys; give --pki DIR to renew certificates later", err=True)
    elif any(change.why == ROTATED for change in renewal.changes):
        for line in _ROTATION:
            click.echo(line, err=True)


def _kept(folder: Path) -> "HostedSet | None":
    from umbilical.hosted.pki.certificate_set import LAYOUT_FILE, HostedSet

    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    found = [path for path in sorted(folder.iterdir()) if path.suffix in _ENDINGS or path.name == LAYOUT_FILE]
    return HostedSet.from_files({path.name: read_bytes(path) for path in found})


def _terms(spec: "HostedSpec") -> "Terms":
    from umbilical.hosted.pki.certificate_set import Terms

    pki = spec.pki
    return Terms(
        pki.signers,
        pki.key_type,
        timedelta(days=pki.authority_days),
        timedelta(days=pki.certificate_days),
        pki.renew_percent / 100,
    )
