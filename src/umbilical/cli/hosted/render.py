"""`umbilical hosted render`: the objects of both clusters from one spec, as files, a kustomize base, or on stdout."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE
from umbilical.cli.pki.options import FOLDER, backend_option
from umbilical.fault import Fault

if TYPE_CHECKING:
    from umbilical.hosted.objects.spec import HostedSpec
    from umbilical.manifests.tree import AssetTree

STDOUT: Final = "-"
_OURS: Final = (".yaml", ".patch")


def _print_example(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from umbilical.hosted.objects.spec_reading import EXAMPLE

        click.echo(EXAMPLE, nl=False)
        context.exit()


@click.command()
@click.option("--spec", "spec_file", type=FILE, required=True, help="What is to be rendered; see --example.")
@click.option("--out", required=True, metavar="DIR|-", help="Directory for the files; - prints the objects only.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["files", "kustomize"]),
    default="files",
    show_default=True,
    help="Plain files, or a kustomize base for each cluster beside them.",
)
@click.option("--pki", "pki_folder", type=FOLDER, help="Keep certificates and signers here, and renew what is due.")
@click.option("--rotate-signers", is_flag=True, help="Make new signers, trusted beside the old ones from now on.")
@click.option("--retire-signers", is_flag=True, help="End the trust in signers that no certificate needs any more.")
@click.option(
    "--management-kubeconfig", type=FILE, help="Look up the ClusterIPs of aggregated APIs in the management cluster."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist in DIR.")
@backend_option
@click.option(
    "--example",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_example,
    help="Print a spec with every key explained, and nothing else.",
)
def render(spec_file: Path, out: str, **options: Any) -> None:
    """Render manifests, certificates and patches of a hosted control plane's tunnel from one spec."""
    from umbilical.cli.hosted import certificates
    from umbilical.cli.tree_files import refuse_existing, write_tree
    from umbilical.hosted.objects.render import Format, notes
    from umbilical.hosted.objects.render import render as rendered

    folder: Path | None = options["pki_folder"]
    if folder is None and (options["rotate_signers"] or options["retire_signers"]):
        raise click.UsageError("--rotate-signers and --retire-signers change a directory: give it with --pki DIR")
    spec = _spec(spec_file, options["management_kubeconfig"])
    renewal = certificates.renewed(
        spec, folder, options["backend"], rotate=options["rotate_signers"], retire=options["retire_signers"]
    )
    tree = rendered(spec, renewal.set, _manifest(spec, spec_file), Format(options["form"]))
    if out != STDOUT:
        refuse_existing(tree, Path(out), overwrite=options["overwrite"])
    if folder is not None:
        # Before what is rendered from it: certificates whose signer is lost could never be renewed.
        certificates.keep(renewal, folder)
    if out == STDOUT:
        _print_objects(tree)
    else:
        write_tree(tree, Path(out), overwrite=options["overwrite"])
        _print_files(tree)
        _tell_leftovers(tree, Path(out))
    certificates.tell(renewal, folder)
    for note in notes(spec):
        click.echo(f"note: {note}", err=True)


def _spec(file: Path, management_kubeconfig: Path | None) -> "HostedSpec":
    from umbilical.hosted.objects.spec_reading import read_spec

    spec = read_spec(_read(file))
    if management_kubeconfig is None:
        return spec
    from umbilical.cli.hosted.lookup import with_looked_up

    return with_looked_up(spec, management_kubeconfig)


def _manifest(spec: "HostedSpec", spec_file: Path) -> bytes | None:
    """Read kube-apiserver's manifest, named from where the spec lies."""
    name = spec.kube_apiserver.manifest
    return _read(spec_file.parent / name) if name else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"cannot read {path}", why, f"look at it: ls -l {path}") from None


def _print_objects(tree: "AssetTree") -> None:
    for asset in tree:
        if asset.path.endswith(".yaml"):
            click.echo(f"---\n# {asset.path}\n{asset.content.decode()}", nl=False)


def _print_files(tree: "AssetTree") -> None:
    for asset in tree:
        click.echo(f"{asset.mode:04o} {len(asset.content):6} {asset.path}")


def _tell_leftovers(tree: "AssetTree", folder: Path) -> None:
    """Name files of an earlier rendering: whoever applies the directory would apply them too."""
    written = {asset.path for asset in tree}
    for place in sorted({Path(asset.path).parent for asset in tree}):
        for path in sorted((folder / place).iterdir()):
            if path.suffix in _OURS and str(place / path.name) not in written:
                click.echo(f"note: {path} is not part of this rendering; remove it unless it is yours", err=True)
