"""`umbilical stage init`: a commented file to begin with."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.options import FILE
from umbilical.cli.stage.options import directory_option
from umbilical.fault import Fault

if TYPE_CHECKING:
    from umbilical.hardway.config.example import Wish


@click.command()
@directory_option
@click.option(
    "--profile",
    type=click.Choice(["openshift", "kubernetes"]),
    default="kubernetes",
    show_default=True,
    help="OpenShift on RHCOS, or upstream Kubernetes.",
)
@click.option("--machines", type=click.Choice(["lab", "libvirt"]), help="Where machines run; follows from the profile.")
@click.option("--masters", type=click.IntRange(1, 9), default=3, show_default=True, help="How many masters.")
@click.option("--workers", type=click.IntRange(0, 500), default=2, show_default=True, help="How many workers.")
@click.option("--name", default="", help="The cluster's name.")
@click.option("--ssh-key", "ssh_keys", type=FILE, multiple=True, help="Public key for the user core; repeatable.")
@click.option("--overwrite", is_flag=True, help="Replace a cluster.yaml that is there.")
def init(
    folder: Path,
    profile: str,
    machines: str | None,
    masters: int,
    workers: int,
    name: str,
    ssh_keys: tuple[Path, ...],
    overwrite: bool,
) -> None:
    """Write cluster.yaml with every key explained; what stands in its comments holds without them."""
    from umbilical.hardway.config.example import example
    from umbilical.hardway.workspace import CONFIG
    from umbilical.host.files import make_directory, write_public

    wish = _wish(profile, machines, masters, workers, name, ssh_keys)
    content = example(wish)
    path = write_public(make_directory(folder) / CONFIG, content, overwrite=overwrite)
    click.echo(path)
    here = "" if folder == Path() else f" --dir {folder}"
    click.echo(f"next: read it, then `umbilical config view --origin{here}`, `umbilical stage plan{here}`", err=True)


def _wish(
    profile: str, machines: str | None, masters: int, workers: int, name: str, ssh_keys: tuple[Path, ...]
) -> "Wish":
    from umbilical.hardway.config.cluster import MachinesKind, Profile
    from umbilical.hardway.config.example import Wish

    usual = "lab" if profile == "kubernetes" else "libvirt"
    keys = tuple(key for path in ssh_keys for key in _public_keys(path))
    return Wish(Profile(profile), MachinesKind(machines or usual), masters, workers, name, keys)


def _public_keys(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise Fault("UMB002", f"cannot read {path}", why, f"look at it: ls -l {path}") from None
    if "PRIVATE KEY" in text:
        raise click.UsageError(f"{path} is a private key; name its public half, usually {path}.pub")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
