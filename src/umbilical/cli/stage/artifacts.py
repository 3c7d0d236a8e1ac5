"""`umbilical stage init`, `plan` and `rotate`: cluster.yaml and the artifacts, before any machine is touched."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from umbilical.cli.findings import output_option
from umbilical.cli.options import ARCHIVE, FILE, kubernetes_version_option
from umbilical.cli.stage.cluster import directory_option, here, utc_now
from umbilical.cli.terminal import has_colour
from umbilical.codes import FINDINGS
from umbilical.fault import Fault

if TYPE_CHECKING:
    from umbilical.hardway.artifacts.diff_objects import ArtifactDiff
    from umbilical.hardway.config.cluster import MachinesKind
    from umbilical.hardway.config.example import ExampleOptions
    from umbilical.hardway.rendering import Rendered


@click.command()
@directory_option
@click.option(
    "--profile",
    type=click.Choice(["openshift", "kubernetes"]),
    default="kubernetes",
    show_default=True,
    help="Cluster type: OpenShift on RHCOS, or upstream Kubernetes.",
)
@click.option(
    "--machines",
    type=click.Choice(["lab", "libvirt"]),
    help="Where the machines run; default: lab for kubernetes, libvirt for openshift.",
)
@click.option("--masters", type=click.IntRange(1, 9), default=3, show_default=True, help="Number of masters.")
@click.option("--workers", type=click.IntRange(0, 500), default=2, show_default=True, help="Number of workers.")
@kubernetes_version_option
@click.option("--name", default="", help="Cluster name; default: lab for kubernetes, ocp4 for openshift.")
@click.option("--ssh-key", "ssh_keys", type=FILE, multiple=True, help="SSH public key file for user core; repeatable.")
@click.option(
    "--image", type=ARCHIVE, help="Image archive from which the tunnel runs in a lab, as `make image` writes it."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing cluster.yaml.")
def init(
    folder: Path,
    profile: str,
    machines: str | None,
    masters: int,
    workers: int,
    kubernetes_version: str | None,
    name: str,
    ssh_keys: tuple[Path, ...],
    image: Path | None,
    overwrite: bool,
) -> None:
    """Write an example cluster.yaml with every key explained.

    Keys in comments show their default values.
    """
    from umbilical.hardway.config.example import example
    from umbilical.hardway.workspace import CONFIG
    from umbilical.host.files import make_directory, write_public

    wish = _wish(profile, machines, masters, workers, kubernetes_version, name, ssh_keys)
    # Absolute: the key in the file is relative to the file.
    content = example(replace(wish, tunnel_archive=str(image.absolute())) if image else wish)
    path = write_public(make_directory(folder) / CONFIG, content, overwrite=overwrite)
    click.echo(path)
    place = here(folder)
    click.echo(f"next: read it, then `umbilical config view --origin{place}`, `umbilical stage plan{place}`", err=True)


def _wish(
    profile: str,
    machines: str | None,
    masters: int,
    workers: int,
    version: str | None,
    name: str,
    ssh_keys: tuple[Path, ...],
) -> "ExampleOptions":
    from umbilical.hardway.config.cluster import ClusterProfile, MachinesKind
    from umbilical.hardway.config.example import ExampleOptions

    usual = "lab" if profile == "kubernetes" else "libvirt"
    keys = tuple(key for path in ssh_keys for key in _public_keys(path))
    place = MachinesKind(machines or usual)
    if version is not None:
        version = _built(version, profile, place)
    return ExampleOptions(ClusterProfile(profile), place, masters, workers, name, keys, version)


def _built(version: str, profile: str, machines: "MachinesKind") -> str:
    """Return the whole version. Raises Fault: its programs are not there for a lab (UMB824)."""
    from umbilical.hardway.config.cluster import MachinesKind
    from umbilical.lab import binaries

    if profile != "kubernetes":
        raise click.UsageError("--kubernetes-version is for --profile kubernetes; OpenShift's release has its own")
    if machines is MachinesKind.LAB:
        binaries.find(binaries.VERSIONED, version=version)
    return binaries.full_version(version)


def _public_keys(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text file"
        raise Fault("UMB002", f"could not read {path}", why, f"ls -l {path}") from None
    if "PRIVATE KEY" in text:
        raise click.UsageError(f"{path} is a private key; give the public key, usually {path}.pub")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


_MARKS: Final = {"created": "+", "changed": "~", "removed": "-"}
_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}


@click.command()
@directory_option
@output_option("table", "json")
@click.option("--stat", "is_short", is_flag=True, help="List only the names of changed files, not the differences.")
@click.option("--exit-code", is_flag=True, help="Exit with status 1 if something would change.")
def plan(folder: Path, output: str, is_short: bool, exit_code: bool) -> int:
    """Show how the rendered artifacts differ from those in DIR.

    Nothing is written, and no secret is shown.
    """
    from umbilical.hardway import rendering

    rendered = rendering.render(folder, utc_now())
    parts = rendered.plan()
    if output == "json":
        click.echo(json.dumps(as_json(rendered, parts), indent=2))
    else:
        print_parts(parts, is_short=is_short)
        print_notes(rendered, parts, folder)
    return FINDINGS if parts and exit_code else 0


def as_json(rendered: "Rendered", parts: "Sequence[ArtifactDiff]") -> dict[str, object]:
    from umbilical.checks.report import API_VERSION
    from umbilical.hardway.artifacts import diff_objects

    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "files": [diff_objects.as_json(one) for one in parts],
        "summary": counts(parts),
        "renewed": [{"id": one.id, "why": one.why} for one in rendered.renewed],
        "releaseIsRead": rendered.has_release,
        "machineConfigsAreMissing": rendered.lacks_machine_configs,
    }


def counts(parts: "Sequence[ArtifactDiff]") -> dict[str, int]:
    return {change: sum(one.change.value == change for one in parts) for change in _MARKS}


def print_parts(parts: "Sequence[ArtifactDiff]", *, is_short: bool) -> None:
    for line in (line for part in parts for line in _lines(part, "", is_short=is_short)):
        click.echo(_coloured(line), color=has_colour())


def print_notes(rendered: "Rendered", parts: "Sequence[ArtifactDiff]", folder: Path) -> None:
    """Print the summary and the notes to stderr."""
    from umbilical.hardway.artifacts import layout

    click.echo(", ".join(f"{number} {change}" for change, number in counts(parts).items()), err=True)
    if not rendered.has_release:
        from umbilical.hardway.workspace import extraction_commands, release_directory

        place = release_directory(folder, rendered.cluster)
        click.echo(f"note: the release is not extracted to {place}; the plan lacks files that need it", err=True)
        lines = [command.line for command in extraction_commands(folder, rendered.cluster)]
        for line in (f"mkdir -p {shlex.quote(str(place))}", *lines) if lines else ():
            click.echo(f"      $ {line}", err=True)
    if rendered.lacks_machine_configs:
        here = "" if folder == Path() else f" --dir {shlex.quote(str(folder))}"
        click.echo(
            "note: no machine configs are rendered, so masters and workers get a small base of our own", err=True
        )
        click.echo("      on which OVN-Kubernetes cannot start (umbilical explain MCO-03)", err=True)
        click.echo(f"      $ umbilical stage run 4{here}", err=True)
    for change in rendered.renewed:
        # For a new key the line of its file is enough.
        if layout.key(change.id) in rendered.on_disk:
            click.echo(f"note: {change.id} would be renewed: {change.why}", err=True)


def _lines(part: "ArtifactDiff", indent: str, *, is_short: bool) -> Iterator[str]:
    yield f"{indent}{_MARKS[part.change.value]} {part.place}{_beside(part)}"
    if is_short:
        return
    inner = f"{indent}    "
    yield from (f"{inner}{line}" for line in part.lines)
    for one in part.parts:
        yield from _lines(one, inner, is_short=False)


def _beside(part: "ArtifactDiff") -> str:
    if part.old is not None and part.new is not None:
        return f": {part.old} -> {part.new}"
    shown = part.old if part.new is None else part.new
    if shown is not None:
        return f": {shown}"
    return f": {part.note}" if part.note else ""


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line.lstrip(" ")[:1])
    return click.style(line, fg=colour) if colour else line


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@directory_option
@click.option("--due", is_flag=True, help="Also renew certificates that expire before an installation can finish.")
def rotate(ids: tuple[str, ...], folder: Path, due: bool) -> None:
    """Renew keys and certificates.

    An ID is a file name in artifacts/tls without its ending. Renewing a signer renews all certificates that it
    signed. Only artifacts/tls is written; the next `umbilical stage run` updates every file that contains them.
    """
    from umbilical.hardway import rendering, workspace
    from umbilical.hardway.ledger import locked

    if not ids and not due:
        raise click.UsageError("give the IDs to renew, or --due for all that expire soon")
    # Before the lock: nothing may be written to a directory without a cluster.
    workspace.read_config(folder)
    with locked(folder, "umbilical stage rotate", utc_now().isoformat(timespec="seconds")):
        rendered = rendering.render(folder, utc_now(), rotate=ids, renew_due=due)
        rendering.keep(folder, rendered)
    _print_renewed(rendered)


def _print_renewed(rendered: "Rendered") -> None:
    for change in rendered.renewed:
        click.echo(f"{change.id}: {change.why}")
    if not rendered.renewed:
        click.echo("no certificate expires soon", err=True)
    written = {asset.path for asset in rendered.made.by_recipe["pki"]}
    follows = [part.place for part in rendered.plan() if part.place not in written]
    if follows:
        click.echo(f"next: umbilical stage run, to update {len(follows)} other files", err=True)
