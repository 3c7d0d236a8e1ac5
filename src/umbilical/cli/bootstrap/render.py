"""`umbilical bootstrap render`: the tunnel's files as they lie on the node, below a directory or on stdout."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.bootstrap.certificates import certificate_options, certificates_from, wants_certificates
from umbilical.cli.bootstrap.options import spec_from, spec_options
from umbilical.cli.options import FILE, check_readable

if TYPE_CHECKING:
    from umbilical.bootstrap.certificates import Certificates
    from umbilical.bootstrap.spec import TunnelSpec
    from umbilical.manifests.tree import AssetTree

STDOUT: Final = "-"


@click.command()
@click.option(
    "--out",
    required=True,
    metavar="DIR|-",
    help="Directory that stands for the node's root; - prints the YAML documents only.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--kube-apiserver", type=FILE, help="The static pod manifest to change; for --shape kubernetes.")
@certificate_options
@spec_options
def render(out: str, overwrite: bool, kube_apiserver: Path | None, **options: Any) -> None:
    """Write the tunnel's manifests, egress file and scripts, as they lie on the node."""
    tree = _rendered(spec_from(options), kube_apiserver, options)
    if out == STDOUT:
        _print_documents(tree)
        return
    from umbilical.cli.tree_files import write_tree

    write_tree(tree, Path(out), overwrite=overwrite)
    for asset in tree:
        click.echo(f"{asset.mode:04o} {len(asset.content):6} {asset.path}")


def _rendered(spec: "TunnelSpec", kube_apiserver: Path | None, options: dict[str, Any]) -> "AssetTree":
    from umbilical.bootstrap.render.render import check_kubernetes, render_kubernetes
    from umbilical.bootstrap.render.render import render as rendered

    has_source = wants_certificates(options)
    if kube_apiserver is None:
        return rendered(spec, certificates=_certificates(spec, options) if has_source else None)
    check_kubernetes(spec)
    check_readable(kube_apiserver)
    return render_kubernetes(spec, kube_apiserver.read_bytes(), _certificates(spec, options))


def _certificates(spec: "TunnelSpec", options: dict[str, Any]) -> "Certificates":
    return certificates_from(options, spec, datetime.now(UTC))


def _print_documents(tree: "AssetTree") -> None:
    """Print what is YAML, each document under the path that it is for."""
    for asset in tree:
        if asset.path.endswith(".yaml"):
            click.echo(f"---\n# {asset.path}\n{asset.content.decode()}", nl=False)
