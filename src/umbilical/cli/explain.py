"""`umbilical explain`: explain a stage, file, flag, certificate, rule, check or code."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbilical.cli.findings import output_option
from umbilical.codes import codes
from umbilical.fault import HardwayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbilical.hardway.explain.entry import Explanation


# Arguments may be flags of other programs, such as --etcd-prefix.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("asked", nargs=-1, type=click.UNPROCESSED, metavar="STAGE|FILE|FLAG|CERT|RULE|CHECK|CODE")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Cluster directory; commands are then shown with its addresses, names and paths.",
)
@click.option("--list", "lists", is_flag=True, help="List everything that can be explained, one name per line.")
@output_option("text", "json", "markdown")
def explain(asked: tuple[str, ...], folder: Path | None, lists: bool, output: str) -> None:
    """Explain a stage, file, flag, certificate, check or code.

    Shows what it is, who reads it, what breaks without it, how to check it by hand, and how the OpenShift installer
    does it. Examples: 05, pki, bootstrap.ign, /etc/kubernetes/kubelet.conf, --etcd-prefix, kubelet --node-ip,
    kubelet-signer, PKI-01, REL-02 (a check of a stage), P4 (a pivot condition), agent-port (a lesson), UMB745.
    """
    if lists:
        click.echo(_listed(_everything()), nl=False)
        return
    if not asked:
        raise click.UsageError("name what to explain; --list shows all names")
    click.echo(_form(_chosen(" ".join(asked), folder), output), nl=False)


def _chosen(asked: str, folder: Path | None) -> "list[Explanation]":
    from umbilical.hardway.explain import lookup
    from umbilical.hardway.explain import lookup as filling

    everything = _everything()
    found = lookup.find(everything, asked)
    if not found:
        raise _unknown(asked, lookup.nearest(everything, asked))
    if folder is None:
        return found
    from umbilical.hardway import workspace

    cluster = workspace.read_config(folder).cluster
    return [filling.filled(entry, cluster, shlex.quote(str(folder)), asked) for entry in found]


def _everything() -> "list[Explanation]":
    from umbilical.cli.stage.cluster import example_sites
    from umbilical.hardway import explaining
    from umbilical.hardway.explain.entry import Explanation, ExplanationKind

    explained = [
        Explanation(
            ExplanationKind.CODE,
            row.code,
            row.meaning,
            scope=f"{row.heading[0].lower()}{row.heading[1:]}; exit status {row.exit_status}",
            fix=row.remedy,
        )
        for row in codes().values()
    ]
    return [*explaining.entries(), *explaining.checks(example_sites().values()), *explained]


def _unknown(asked: str, close: "Sequence[str]") -> Exception:
    why = f"similar names: {', '.join(close)}" if close else "no name is similar"
    remedy = f"umbilical explain {shlex.quote(close[0])}" if close else "umbilical explain --list"
    return HardwayError("UMB750", f"found no explanation for {asked!r}", why, remedy)


def _form(entries: "Sequence[Explanation]", output: str) -> str:
    from umbilical.hardway.explain import entry as forms

    write = {"text": forms.as_text, "json": forms.as_json, "markdown": forms.as_markdown}
    return write[output](entries)


def _listed(entries: "Sequence[Explanation]") -> str:
    from itertools import groupby

    groups = groupby(entries, key=lambda entry: entry.kind)
    return "".join(f"{kind.value:<12} {entry.name}\n" for kind, of in groups for entry in of)
