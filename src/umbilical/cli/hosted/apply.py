"""`umbilical hosted apply`: a rendered directory into the management and the hosted cluster, by server-side apply."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.checks.report import API_VERSION
from umbilical.cli.findings import output_option
from umbilical.cli.options import FILE, duration
from umbilical.codes import FINDINGS

if TYPE_CHECKING:
    from umbilical.cluster.apply import ManifestDocument
    from umbilical.hosted.apply import ApplyOptions, Step, TokenCopy

FOLDER: Final = click.Path(path_type=Path, file_okay=False, exists=True)
Work = list[tuple[str, Path, "list[ManifestDocument]"]]
"""Name of the cluster, its kubeconfig, what it shall hold."""


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--kubeconfig", type=FILE, help="Of the hosted cluster: takes what lies in DIR/hosted.")
@click.option("--management-kubeconfig", type=FILE, help="Of the management cluster: takes DIR/management.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    show_default=True,
    help="server: the API checks everything and stores nothing.",
)
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another manager has set.")
@click.option(
    "--token-timeout",
    type=duration,
    default="30s",
    show_default=True,
    help="For the hosted cluster to make the sidecars' token, which is copied to the control plane.",
)
@output_option("table", "json")
def apply(folder: Path, output: str, **options: Any) -> int:
    """Apply the objects that `hosted render` wrote to DIR, in order: namespaces, rights, keys, services, pods."""
    from umbilical.hosted.apply import ApplyOptions

    work = _work(folder, options["kubeconfig"], options["management_kubeconfig"])
    _tell_patches(folder)
    chosen = ApplyOptions(is_dry_run=options["dry_run"] == "server", force=options["force_conflicts"])
    _tell_copy(work)
    steps = asyncio.run(_applied(work, chosen, options["token_timeout"], tells=output == "table"))
    if output == "json":
        click.echo(_as_json(steps, chosen.is_dry_run), nl=False)
    else:
        click.echo(_last_line(steps, chosen.is_dry_run))
    return FINDINGS if any(step.outcome.is_finding for step in steps) else 0


def _work(folder: Path, hosted: Path | None, management: Path | None) -> Work:
    """Bring files and clusters together; both directories are read before anything is changed."""
    from umbilical.hosted.apply import read_manifests
    from umbilical.hosted.objects.render import HOSTED, MANAGEMENT

    given = {MANAGEMENT: (management, "--management-kubeconfig"), HOSTED: (hosted, "--kubeconfig")}
    if all(kubeconfig is None for kubeconfig, _ in given.values()):
        raise click.UsageError("say into which cluster: --management-kubeconfig, --kubeconfig, or both")
    work: Work = []
    for cluster, (kubeconfig, option) in given.items():
        if kubeconfig is not None:
            work.append((cluster, kubeconfig, read_manifests(folder / cluster)))
        elif (folder / cluster).is_dir():
            click.echo(f"note: {folder / cluster} is left alone, for there is no {option}", err=True)
    return work


def _tell_patches(folder: Path) -> None:
    """What changes an object that somebody else made is that one's to apply."""
    from umbilical.hosted.objects.render import PATCHES

    if (folder / PATCHES).is_dir():
        said = f"{folder / PATCHES} is not applied: those Deployments belong to whoever made them"
        click.echo(f"note: {said}; use the patches with kustomize or kubectl patch", err=True)


def _tell_copy(work: Work) -> None:
    """A token is copied by whoever reaches both clusters; whoever reaches one hears what is left to do."""
    from umbilical.hosted.apply import SOURCE, has_source

    copy = _copy_of(work)
    ((_, _, documents), *others) = work
    if others or not (copy or has_source(documents)):
        return
    where = copy.namespace if copy else "the control-plane namespace"
    said = f"sidecars resolve no names before {SOURCE} of the hosted cluster is copied to {where}"
    click.echo(f"note: {said}: apply with both kubeconfigs at once, or copy its token and ca.crt by hand", err=True)


def _copy_of(work: Work) -> "TokenCopy | None":
    from umbilical.hosted.apply import planned_copy
    from umbilical.hosted.objects.render import MANAGEMENT

    return next((planned_copy(name, documents) for name, _, documents in work if name == MANAGEMENT), None)


async def _applied(work: Work, options: "ApplyOptions", token_seconds: float, *, tells: bool) -> "list[Step]":
    from umbilical.hosted.apply import Patience, apply_documents, copy_token

    copy = _copy_of(work) if len(work) > 1 else None
    width = max(len(subject) for subject in _subjects(work, copy))
    steps: list[Step] = []

    def tell(step: "Step") -> None:
        if tells:
            click.echo(_row(step, width))

    for cluster, kubeconfig, documents in work:
        steps += await apply_documents(cluster, kubeconfig, documents, options, tell)
    if copy is not None:
        kubeconfigs = {cluster: kubeconfig for cluster, kubeconfig, _ in work}
        management = kubeconfigs.pop(copy.cluster)
        (hosted,) = kubeconfigs.values()
        patience = Patience(token_seconds, lambda: _tell_wait(token_seconds))
        steps.append(await copy_token(copy, hosted, management, options, tell, patience))
    return steps


def _tell_wait(seconds: float) -> None:
    from umbilical.hosted.apply import SOURCE

    click.echo(f"waiting up to {seconds:g} s for the hosted cluster to put a token into {SOURCE}", err=True)


def _subjects(work: Work, copy: "TokenCopy | None") -> list[str]:
    return [str(document) for _, _, documents in work for document in documents] + ([copy.subject] if copy else [])


def _row(step: "Step", width: int) -> str:
    from umbilical.checks.report import printable

    line = f"{step.cluster:<10}  {step.subject:<{width}}  {step.outcome.value}"
    told = [f"    why: {step.detail}"] if step.detail else []
    told += [f"    next: {step.remedy}"] if step.remedy else []
    return "\n".join(printable(text) for text in (line, *told))


def _last_line(steps: "list[Step]", is_dry_run: bool) -> str:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.outcome.value] = counts.get(step.outcome.value, 0) + 1
    told = ", ".join(f"{number} {word}" for word, number in counts.items())
    return f"\n{len(steps)} objects: {told}" + (" (dry run: nothing was stored)" if is_dry_run else "")


def _as_json(steps: "list[Step]", is_dry_run: bool) -> str:
    rows = [
        {
            "cluster": step.cluster,
            "object": step.subject,
            "outcome": step.outcome.value,
            "detail": step.detail,
            "next": step.remedy,
        }
        for step in steps
    ]
    value = {"apiVersion": API_VERSION, "kind": "ApplyReport", "dryRun": is_dry_run, "objects": rows}
    return json.dumps(value, indent=2) + "\n"
