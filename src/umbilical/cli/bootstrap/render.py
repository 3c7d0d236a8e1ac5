"""`umbilical bootstrap render`: the tunnel's files as they lie on the node, below a directory or on stdout.

Certificates are made or taken here only where the options ask for it: they need an address that is known by then.
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
        help="Take the certificates that `pki init` made here.",
    ),
    click.option("--ca-cert", type=FILE, help="Sign with this CA, instead of one that the node makes for a day."),
    click.option("--ca-key", type=FILE, help="Its key."),
    click.option(
        "--from-install-state",
        "install_state",
        type=FILE,
        help="Sign with the RootCA in this .openshift_install_state.json.",
    ),
)
_SOURCES: Final = {"pki_directory": "--pki", "ca_cert": "--ca-cert", "install_state": "--from-install-state"}


certificate_options: Final = apply_options(_OPTIONS)


def wants_certificates(options: dict[str, Any]) -> bool:
    """Whether the options name a source of certificates. Raises Fault: one is half given, or there are two."""
    given = [spelling for name, spelling in _SOURCES.items() if options[name] is not None]
    if (options["ca_cert"] is None) != (options["ca_key"] is None):
        given_half, missing = ("--ca-cert", "--ca-key") if options["ca_key"] is None else ("--ca-key", "--ca-cert")
        raise Fault("UMB003", f"{given_half} without {missing}", "a CA signs by its key", f"add {missing} FILE")
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: certificates come from one place")
    return bool(given)


def certificates_from(options: dict[str, Any], spec: TunnelSpec, now: datetime) -> Certificates:
    """Make the certificates, or read them; without any source a new authority signs, and its key is forgotten.

    Raises Fault: the address is not known yet, or what was given cannot serve it.
    """
    if spec.node_ip is None:
        raise Fault(
            "UMB117",
            "certificates cannot be made before the node's address is known",
            "the server's certificate names the address that agents dial",
            "add --node-ip ADDRESS, or leave the certificates to the node",
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
        raise Fault("UMB117", f"an agent that dials {address} would not connect", refusal.why, remedy)
    return Certificates(authority, *pairs)


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
    from umbilical.cli.tree_files import print_documents, print_files, write_tree

    tree = _rendered(spec_from(options), kube_apiserver, options)
    if out == STDOUT:
        print_documents(tree)
        return
    write_tree(tree, Path(out), overwrite=overwrite)
    print_files(tree)


def _rendered(spec: "TunnelSpec", kube_apiserver: Path | None, options: dict[str, Any]) -> "AssetTree":
    from umbilical.bootstrap.render.render import check_kubernetes, render_kubernetes
    from umbilical.bootstrap.render.render import render as rendered

    has_source = wants_certificates(options)
    if kube_apiserver is None:
        return rendered(spec, certificates=certificates_from(options, spec, datetime.now(UTC)) if has_source else None)
    check_kubernetes(spec)
    check_readable(kube_apiserver)
    return render_kubernetes(spec, kube_apiserver.read_bytes(), certificates_from(options, spec, datetime.now(UTC)))
