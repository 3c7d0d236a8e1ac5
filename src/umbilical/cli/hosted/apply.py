"""`umbilical hosted apply`: apply a rendered directory to the management and hosted cluster (server-side apply)."""

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
    from umbilical.hosted.apply import ApplyOptions, ApplyResult, TokenCopy

FOLDER: Final = click.Path(path_type=Path, file_okay=False, exists=True)
Work = list[tuple[str, Path, "list[ManifestDocument]"]]
"""For each cluster: its name, its kubeconfig, the objects to apply."""


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--kubeconfig", type=FILE, help="Kubeconfig of the hosted cluster, for DIR/hosted.")
@click.option("--management-kubeconfig", type=FILE, help="Kubeconfig of the management cluster, for DIR/management.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    show_default=True,
    help="With server, the API server validates every object and stores none.",
)
@click.option("--force-conflicts", is_flag=True, help="Overwrite fields that another field manager owns.")
@click.option(
    "--token-timeout",
    type=duration,
    default="30s",
    show_default=True,
    help="How long to wait for the hosted cluster to create the sidecars' token.",
)
@output_option("table", "json")
def apply(folder: Path, output: str, **options: Any) -> int:
    """Apply the objects that `hosted render` wrote to DIR.

    The order is: namespaces, RBAC, Secrets and ConfigMaps, Services, pods. With both kubeconfigs the sidecars' token is
    copied from the hosted cluster to the control-plane namespace. The exit status is 1 if an object was refused.
    """
    from umbilical.hosted.apply import ApplyOptions

    work = _work(folder, options["kubeconfig"], options["management_kubeconfig"])
    _note_patches(folder)
    chosen = ApplyOptions(is_dry_run=options["dry_run"] == "server", force=options["force_conflicts"])
    _note_copy(work)
    results = asyncio.run(_applied(work, chosen, options["token_timeout"], prints=output == "table"))
    if output == "json":
        click.echo(_as_json(results, chosen.is_dry_run), nl=False)
    else:
        click.echo(_last_line(results, chosen.is_dry_run))
    return FINDINGS if any(result.outcome.is_finding for result in results) else 0


def _work(folder: Path, hosted: Path | None, management: Path | None) -> Work:
    """Read both directories before anything is applied."""
    from umbilical.hosted.apply import read_manifests
    from umbilical.hosted.objects.render import HOSTED, MANAGEMENT

    given = {MANAGEMENT: (management, "--management-kubeconfig"), HOSTED: (hosted, "--kubeconfig")}
    if all(kubeconfig is None for kubeconfig, _ in given.values()):
        raise click.UsageError("give --management-kubeconfig, --kubeconfig, or both")
    work: Work = []
    for cluster, (kubeconfig, option) in given.items():
        if kubeconfig is not None:
            work.append((cluster, kubeconfig, read_manifests(folder / cluster)))
        elif (folder / cluster).is_dir():
            click.echo(f"note: {folder / cluster} is not applied: {option} is not given", err=True)
    return work


def _note_patches(folder: Path) -> None:
    from umbilical.hosted.objects.render import PATCHES

    if (folder / PATCHES).is_dir():
        note = f"{folder / PATCHES} is not applied: its patches are for Deployments that others manage"
        click.echo(f"note: {note}; apply them with kustomize or kubectl patch", err=True)


def _note_copy(work: Work) -> None:
    """With one kubeconfig the token cannot be copied: print what is left to do."""
    from umbilical.hosted.apply import SOURCE, has_source

    copy = _copy_of(work)
    ((_, _, documents), *others) = work
    if others or not (copy or has_source(documents)):
        return
    where = copy.namespace if copy else "the control-plane namespace"
    note = f"sidecars cannot resolve names until {SOURCE} of the hosted cluster is copied to {where}"
    click.echo(f"note: {note}: run this command with both kubeconfigs, or copy its token and ca.crt by hand", err=True)


def _copy_of(work: Work) -> "TokenCopy | None":
    from umbilical.hosted.apply import planned_copy
    from umbilical.hosted.objects.render import MANAGEMENT

    return next((planned_copy(name, documents) for name, _, documents in work if name == MANAGEMENT), None)


async def _applied(work: Work, options: "ApplyOptions", token_seconds: float, *, prints: bool) -> "list[ApplyResult]":
    from umbilical.hosted.apply import TokenWait, apply_documents, copy_token

    copy = _copy_of(work) if len(work) > 1 else None
    width = max(len(subject) for subject in _subjects(work, copy))
    results: list[ApplyResult] = []

    def show(result: "ApplyResult") -> None:
        if prints:
            click.echo(_row(result, width))

    for cluster, kubeconfig, documents in work:
        results += await apply_documents(cluster, kubeconfig, documents, options, show)
    if copy is not None:
        kubeconfigs = {cluster: kubeconfig for cluster, kubeconfig, _ in work}
        management = kubeconfigs.pop(copy.cluster)
        (hosted,) = kubeconfigs.values()
        patience = TokenWait(token_seconds, lambda: _note_wait(token_seconds))
        results.append(await copy_token(copy, hosted, management, options, show, patience))
    return results


def _note_wait(seconds: float) -> None:
    from umbilical.hosted.apply import SOURCE

    click.echo(f"waiting up to {seconds:g} s for the hosted cluster to write a token to {SOURCE}", err=True)


def _subjects(work: Work, copy: "TokenCopy | None") -> list[str]:
    return [str(document) for _, _, documents in work for document in documents] + ([copy.subject] if copy else [])


def _row(result: "ApplyResult", width: int) -> str:
    from umbilical.checks.report import printable

    line = f"{result.cluster:<10}  {result.subject:<{width}}  {result.outcome.value}"
    lines = [f"    why: {result.detail}"] if result.detail else []
    lines += [f"    next: {result.remedy}"] if result.remedy else []
    return "\n".join(printable(text) for text in (line, *lines))


def _last_line(results: "list[ApplyResult]", is_dry_run: bool) -> str:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.outcome.value] = counts.get(result.outcome.value, 0) + 1
    summary = ", ".join(f"{number} {word}" for word, number in counts.items())
    return f"\n{len(results)} objects: {summary}" + (" (dry run: nothing was stored)" if is_dry_run else "")


def _as_json(results: "list[ApplyResult]", is_dry_run: bool) -> str:
    rows = [
        {
            "cluster": result.cluster,
            "object": result.subject,
            "outcome": result.outcome.value,
            "detail": result.detail,
            "next": result.remedy,
        }
        for result in results
    ]
    value = {"apiVersion": API_VERSION, "kind": "ApplyReport", "dryRun": is_dry_run, "objects": rows}
    return json.dumps(value, indent=2) + "\n"
