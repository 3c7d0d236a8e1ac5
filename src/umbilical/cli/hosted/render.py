"""`umbilical hosted render`: the objects of both clusters from one spec, as files, a kustomize base, or on stdout.

Before that: ClusterIPs asked of the management cluster, and certificates made or renewed in their directory.
"""

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE
from umbilical.cli.pki.files import read_bytes, write_directory
from umbilical.cli.pki.options import FOLDER, backend_option
from umbilical.fault import Fault
from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import HostedSpec, IpAddress

if TYPE_CHECKING:
    from umbilical.cluster.client import ApiClient
    from umbilical.hosted.objects.spec import HostedSpec
    from umbilical.hosted.pki.certificate_set import HostedSet, Renewal, Terms
    from umbilical.manifests.tree import AssetTree

_NONE: Final = ("", "None")
"""What a Service has in place of an address before it gets one, and if it shall have none."""


def with_looked_up(spec: HostedSpec, kubeconfig: Path) -> HostedSpec:
    """Put the addresses of aggregated APIs in: of Services that the spec names, and of those with the label.

    Raises Fault: the API does not answer, or refuses.
    """
    from umbilical.cluster.client import make_client

    async def look() -> dict[str, tuple[IpAddress, ...]]:
        async with make_client(kubeconfig) as client:
            return await look_up(client, spec)

    return spec.with_addresses(asyncio.run(look()))


async def look_up(client: "ApiClient", spec: HostedSpec) -> dict[str, tuple[IpAddress, ...]]:
    from umbilical.cluster import objects

    kind = objects.ApiKind("Service", "/api/v1", "services")
    return addresses(await objects.list_objects(client, kind, spec.namespace), spec)


def addresses(services: Iterable[Mapping[str, Any]], spec: HostedSpec) -> dict[str, tuple[IpAddress, ...]]:
    """Pick from a list of Services; those that have no address yet are left out."""
    named = {api.service for api in spec.aggregated_apis}
    found = {}
    for service in services:
        head, body = service.get("metadata") or {}, service.get("spec") or {}
        is_labelled = (head.get("labels") or {}).get(names.AGGREGATED_LABEL) == "true"
        texts = body.get("clusterIPs") or [body.get("clusterIP") or ""]
        if (is_labelled or head.get("name") in named) and not any(text in _NONE for text in texts):
            found[head["name"]] = tuple(ipaddress.ip_address(text) for text in texts)
    return found


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
    """Take up what the directory holds, and make the rest; write nothing. Raises PkiError: it cannot be taken up."""
    from umbilical.cli.pki.options import chosen_backend
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
    from umbilical.cli.tree_files import print_documents, print_files, refuse_existing, write_tree
    from umbilical.hosted.objects.render import Format, notes
    from umbilical.hosted.objects.render import render as rendered

    folder: Path | None = options["pki_folder"]
    if folder is None and (options["rotate_signers"] or options["retire_signers"]):
        raise click.UsageError("--rotate-signers and --retire-signers change a directory: give it with --pki DIR")
    spec = _spec(spec_file, options["management_kubeconfig"])
    renewal = renewed(
        spec, folder, options["backend"], rotate=options["rotate_signers"], retire=options["retire_signers"]
    )
    tree = rendered(spec, renewal.set, _manifest(spec, spec_file), Format(options["form"]))
    if out != STDOUT:
        refuse_existing(tree, Path(out), overwrite=options["overwrite"])
    if folder is not None:
        # Before what is rendered from it: certificates whose signer is lost could never be renewed.
        keep(renewal, folder)
    if out == STDOUT:
        print_documents(tree)
    else:
        write_tree(tree, Path(out), overwrite=options["overwrite"])
        print_files(tree)
        _tell_leftovers(tree, Path(out))
    tell(renewal, folder)
    for note in notes(spec):
        click.echo(f"note: {note}", err=True)


def _spec(file: Path, management_kubeconfig: Path | None) -> "HostedSpec":
    from umbilical.hosted.objects.spec_reading import read_spec

    spec = read_spec(read_input(file))
    if management_kubeconfig is None:
        return spec

    return with_looked_up(spec, management_kubeconfig)


def _manifest(spec: "HostedSpec", spec_file: Path) -> bytes | None:
    """Read kube-apiserver's manifest, named from where the spec lies."""
    name = spec.kube_apiserver.manifest
    return read_input(spec_file.parent / name) if name else None


def read_input(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"cannot read {path}", why, f"look at it: ls -l {path}") from None


def _tell_leftovers(tree: "AssetTree", folder: Path) -> None:
    """Name files of an earlier rendering: whoever applies the directory would apply them too."""
    written = {asset.path for asset in tree}
    for place in sorted({Path(asset.path).parent for asset in tree}):
        for path in sorted((folder / place).iterdir()):
            if path.suffix in _OURS and str(place / path.name) not in written:
                click.echo(f"note: {path} is not part of this rendering; remove it unless it is yours", err=True)
