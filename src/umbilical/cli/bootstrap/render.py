"""`umbilical bootstrap render`: writes the tunnel's files below a directory, or the YAML documents to stdout.

Certificates are created or read here only if an option asks for it: they need a known node address.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.cli.bootstrap.options import spec_from, spec_options
from umbilical.cli.findings import apply_options
from umbilical.cli.options import FILE, check_readable
from umbilical.cli.pki.files import read_bytes
from umbilical.fault import Fault
from umbilical.manifests.objects import IpAddress
from umbilical.pki.pem import KeyPair

if TYPE_CHECKING:
    from umbilical.bootstrap.certificates import Certificates
    from umbilical.bootstrap.spec import TunnelSpec
    from umbilical.manifests.tree import AssetTree

_OPTIONS: Final = (
    click.option(
        "--pki",
        "pki_directory",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Directory with certificates from `umbilical pki init`.",
    ),
    click.option("--ca-cert", type=FILE, help="CA certificate to sign with; default: a new CA, made on the node."),
    click.option("--ca-key", type=FILE, help="Private key of --ca-cert."),
    click.option(
        "--from-install-state",
        "install_state",
        type=FILE,
        help="Sign with the RootCA of this .openshift_install_state.json.",
    ),
)
_SOURCES: Final = {"pki_directory": "--pki", "ca_cert": "--ca-cert", "install_state": "--from-install-state"}


certificate_options: Final = apply_options(_OPTIONS)


def wants_certificates(options: dict[str, Any]) -> bool:
    """Whether the options name a source of certificates. Raises Fault: it is incomplete, or there are two."""
    given = [spelling for name, spelling in _SOURCES.items() if options[name] is not None]
    if (options["ca_cert"] is None) != (options["ca_key"] is None):
        given_half, missing = ("--ca-cert", "--ca-key") if options["ca_key"] is None else ("--ca-key", "--ca-cert")
        raise Fault(
            "UMB003", f"{given_half} was given without {missing}", "a CA signs with its key", f"add {missing} FILE"
        )
    if len(given) > 1:
        raise click.UsageError(f"give only one of {' and '.join(given)}: each is a source of certificates")
    return bool(given)


def certificates_from(options: dict[str, Any], spec: TunnelSpec, now: datetime) -> Certificates:
    """Create the certificates, or read them; without a source a new CA signs, and its key is discarded.

    Raises Fault: the address is not known yet, or the given files do not fit it.
    """
    if spec.node_ip is None:
        raise Fault(
            "UMB117",
            "certificates were not created: the node's address is not known",
            "the server's certificate must contain the address that agents dial",
            "add --node-ip ADDRESS, or let the node create the certificates",
        )
    if options["pki_directory"] is not None:
        return _taken(options["pki_directory"], spec.node_ip)
    return _signed(_authority_pair(options), spec.node_ip, now, timedelta(hours=spec.certificate_hours))


def _authority_pair(options: dict[str, Any]) -> KeyPair | None:
    from umbilical.bootstrap.install_files import root_authority_from_state

    if options["install_state"] is not None:
        return root_authority_from_state(read_bytes(options["install_state"]))
    if options["ca_cert"] is not None:
        return KeyPair(read_bytes(options["ca_cert"]), read_bytes(options["ca_key"]))
    return None


def _signed(pair: KeyPair | None, address: IpAddress, now: datetime, lifetime: timedelta) -> Certificates:
    from umbilical.cli.pki.options import AUTO, chosen_backend
    from umbilical.pki.profiles import KeyType
    from umbilical.pki.tunnel_set import TunnelLeaf, TunnelRole, create_authority, load_authority

    with chosen_backend(AUTO) as backend:
        if pair is None:
            authority = create_authority(backend, now, lifetime, KeyType.RSA_2048)
        else:
            authority = load_authority(backend, pair, now)
        server = TunnelLeaf(TunnelRole.SERVER, KeyType.RSA_2048, (str(address),))
        agent = TunnelLeaf(TunnelRole.AGENT, KeyType.RSA_2048)
        issued = [authority.issue(leaf, now, lifetime) for leaf in (server, agent)]
    return Certificates(authority.bundle, *issued)


def _taken(folder: Path, address: IpAddress) -> Certificates:
    from umbilical.pki.directory import PairFiles, connect
    from umbilical.pki.tunnel_set import AUTHORITY_FILE, TunnelRole

    server, agent = (
        PairFiles(folder / role.certificate_file, folder / role.key_file)
        for role in (TunnelRole.SERVER, TunnelRole.AGENT)
    )
    pairs = [KeyPair(read_bytes(files.certificate), read_bytes(files.key)) for files in (server, agent)]
    authority = read_bytes(folder / AUTHORITY_FILE)
    refusal = connect(server, agent, folder / AUTHORITY_FILE, str(address))
    if refusal is not None:
        remedy = f"umbilical pki verify {folder} --address {address}"
        raise Fault("UMB117", f"no agent could connect to {address} with these files", refusal.why, remedy)
    return Certificates(authority, *pairs)


STDOUT: Final = "-"


@click.command()
@click.option(
    "--out",
    required=True,
    metavar="DIR|-",
    help="Output directory, laid out like the node's root; - prints the YAML documents only.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@click.option("--test-webhook", metavar="IMAGE", help="Write only a test webhook; its pod runs IMAGE, with python3.")
@click.option("--kube-apiserver", type=FILE, help="kube-apiserver's manifest to change; only for --shape kubernetes.")
@certificate_options
@spec_options
def render(out: str, overwrite: bool, test_webhook: str | None, kube_apiserver: Path | None, **options: Any) -> None:
    """Write the tunnel's manifests, egress file and scripts.

    With --test-webhook writes the manifests of a webhook in a pod instead, which `verify --live` then calls.
    """
    from umbilical.cli.tree_files import print_documents, print_files, write_tree

    if test_webhook is not None:
        tree = _trial_webhook(test_webhook, datetime.now(UTC))
    else:
        tree = _rendered(spec_from(options), kube_apiserver, options)
    if out == STDOUT:
        print_documents(tree)
        return
    write_tree(tree, Path(out), overwrite=overwrite)
    print_files(tree)
    if test_webhook is not None:
        _print_next(out)


def _trial_webhook(image: str, now: datetime) -> "AssetTree":
    from umbilical.bootstrap.render.trial_webhook import NAME, SERVER_NAMES, trial_webhook
    from umbilical.pki.authority import Authority
    from umbilical.pki.profiles import KeyType, server_profile

    day = timedelta(days=1)
    authority = Authority.create(f"{NAME}-ca", now, day, KeyType.RSA_2048)
    pair = authority.issue(server_profile(NAME, SERVER_NAMES, KeyType.RSA_2048), now, day)
    return trial_webhook(image, authority.certificate_pem, pair)


def _print_next(out: str) -> None:
    from umbilical.bootstrap.render.trial_webhook import REMOVAL

    click.echo(f"next: kubectl apply -f {out}, then: umbilical bootstrap verify --live --kubeconfig FILE", err=True)
    click.echo(f"remove it: {REMOVAL}", err=True)


def _rendered(spec: "TunnelSpec", kube_apiserver: Path | None, options: dict[str, Any]) -> "AssetTree":
    from umbilical.bootstrap.render.render import check_kubernetes, render_kubernetes
    from umbilical.bootstrap.render.render import render as rendered

    has_source = wants_certificates(options)
    if kube_apiserver is None:
        return rendered(spec, certificates=certificates_from(options, spec, datetime.now(UTC)) if has_source else None)
    check_kubernetes(spec)
    check_readable(kube_apiserver)
    return render_kubernetes(spec, kube_apiserver.read_bytes(), certificates_from(options, spec, datetime.now(UTC)))
