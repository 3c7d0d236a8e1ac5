"""`umbilical hosted render`: render the objects of both clusters from one spec: files, a kustomize base, or stdout.

Before that it looks up ClusterIPs in the management cluster, and creates or renews the certificates in their directory.
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
    from umbilical.hosted.pki.certificate_set import CertificateSettings, HostedSet, HostedSetRenewal
    from umbilical.manifests.tree import AssetTree

_NONE: Final = ("", "None")
"""Values of clusterIP before one is assigned, and of a headless Service."""


def with_looked_up(spec: HostedSpec, kubeconfig: Path) -> HostedSpec:
    """Return the spec with the ClusterIPs of aggregated APIs: Services that it names, and those with the label.

    Raises Fault: the API does not answer, or refuses the request.
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
    """Return ClusterIPs by Service; Services without one are left out."""
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
    "next, in this order, because a signer must be trusted before its certificates are used:",
    "  1. apply this to both clusters, and to nodes with static pods",
    "  2. render again: this signs the certificates with the new signers; apply that",
    "  3. render with --retire-signers, and apply that",
)


def renewed(
    spec: "HostedSpec", folder: Path | None, backend: str, *, rotate: bool, retire: bool, now: datetime | None = None
) -> "HostedSetRenewal":
    """Read the directory and create what is missing or due; write nothing. Raises PkiError: it cannot be read."""
    from umbilical.cli.pki.options import chosen_backend
    from umbilical.hosted.pki.certificate_set import ListenerNames, renew

    names = ListenerNames(spec.frontend_names, spec.agent_listener_names)
    existing = None if folder is None else _kept(folder)
    with chosen_backend(backend) as signing:
        moment = now or datetime.now(UTC)
        return renew(existing, names, _terms(spec), moment, signing, rotate=rotate, retire=retire)


def keep(renewal: "HostedSetRenewal", folder: Path) -> None:
    """Write the directory if something changed; keys are readable for their owner only."""
    if renewal.changes:
        write_directory(folder, renewal.set.files(), overwrite=True)


def print_changes(renewal: "HostedSetRenewal", folder: Path | None) -> None:
    """Print on standard error what was created, and the next steps."""
    from umbilical.hosted.pki.certificate_set import ROTATED

    for change in renewal.changes:
        click.echo(f"{'created' if change.is_new else 'changed'} {change.id}: {change.why}", err=True)
    if folder is None:
        click.echo("note: the signers' keys are not kept; give --pki DIR to renew certificates later", err=True)
    elif any(change.why == ROTATED for change in renewal.changes):
        for line in _ROTATION:
            click.echo(line, err=True)


def _kept(folder: Path) -> "HostedSet | None":
    from umbilical.hosted.pki.certificate_set import LAYOUT_FILE, HostedSet

    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    found = [path for path in sorted(folder.iterdir()) if path.suffix in _ENDINGS or path.name == LAYOUT_FILE]
    return HostedSet.from_files({path.name: read_bytes(path) for path in found})


def _terms(spec: "HostedSpec") -> "CertificateSettings":
    from umbilical.hosted.pki.certificate_set import CertificateSettings

    pki = spec.pki
    return CertificateSettings(
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
@click.option("--spec", "spec_file", type=FILE, required=True, help="Spec file (YAML); see --example.")
@click.option("--out", required=True, metavar="DIR|-", help="Output directory; - prints the objects.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["files", "kustomize"]),
    default="files",
    show_default=True,
    help="Plain files, or also a kustomize base for each cluster.",
)
@click.option("--pki", "pki_folder", type=FOLDER, help="Directory where certificates and signers are kept and renewed.")
@click.option("--rotate-signers", is_flag=True, help="Create new signers, trusted in addition to the old ones.")
@click.option("--retire-signers", is_flag=True, help="Remove trust in signers that no certificate needs any more.")
@click.option("--management-kubeconfig", type=FILE, help="Kubeconfig of the management cluster, to look up ClusterIPs.")
@click.option("--overwrite", is_flag=True, help="Overwrite existing files in the output directory.")
@backend_option
@click.option(
    "--example",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_example,
    help="Print an example spec that explains every key, and exit.",
)
def render(spec_file: Path, out: str, **options: Any) -> None:
    """Render the tunnel of a hosted control plane from a spec.

    Writes manifests for both clusters, certificates, and patches for Deployments that others manage.
    """
    from umbilical.cli.tree_files import print_documents, print_files, refuse_existing, write_tree
    from umbilical.hosted.objects.render import Format, notes
    from umbilical.hosted.objects.render import render as rendered

    folder: Path | None = options["pki_folder"]
    if folder is None and (options["rotate_signers"] or options["retire_signers"]):
        raise click.UsageError("--rotate-signers and --retire-signers need --pki DIR")
    spec = _spec(spec_file, options["management_kubeconfig"])
    renewal = renewed(
        spec, folder, options["backend"], rotate=options["rotate_signers"], retire=options["retire_signers"]
    )
    tree = rendered(spec, renewal.set, _manifest(spec, spec_file), Format(options["form"]))
    if out != STDOUT:
        refuse_existing(tree, Path(out), overwrite=options["overwrite"])
    if folder is not None:
        # Before the manifests: certificates whose signer is lost could never be renewed.
        keep(renewal, folder)
    if out == STDOUT:
        print_documents(tree)
    else:
        write_tree(tree, Path(out), overwrite=options["overwrite"])
        print_files(tree)
        _note_leftovers(tree, Path(out))
    print_changes(renewal, folder)
    for note in notes(spec):
        click.echo(f"note: {note}", err=True)


def _spec(file: Path, management_kubeconfig: Path | None) -> "HostedSpec":
    from umbilical.hosted.objects.spec_reading import read_spec

    spec = read_spec(read_input(file))
    return spec if management_kubeconfig is None else with_looked_up(spec, management_kubeconfig)


def _manifest(spec: "HostedSpec", spec_file: Path) -> bytes | None:
    """Read kube-apiserver's manifest; its path is relative to the spec file."""
    name = spec.kube_apiserver.manifest
    return read_input(spec_file.parent / name) if name else None


def read_input(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"could not read {path}", why, f"ls -l {path}") from None


def _note_leftovers(tree: "AssetTree", folder: Path) -> None:
    """Name files of an earlier rendering: `hosted apply` would apply them too."""
    written = {asset.path for asset in tree}
    for place in sorted({Path(asset.path).parent for asset in tree}):
        for path in sorted((folder / place).iterdir()):
            if path.suffix in _OURS and str(place / path.name) not in written:
                click.echo(f"note: {path} is not part of this rendering; delete it if it is stale", err=True)
