"""Certificates that are made, or taken, when assets are rendered: they need an address that is known by then."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.cli.options import FILE, Command
from umbilical.cli.pki.files import read_bytes
from umbilical.fault import Fault
from umbilical.manifests.objects import IpAddress
from umbilical.pki.pem import KeyPair

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


def certificate_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wants_certificates(options: dict[str, Any]) -> bool:
    """Tell whether the options name a source of certificates, at most one.

    Raises:
        Fault: a source is half given, or two are.
    """
    given = [spelling for name, spelling in _SOURCES.items() if options[name] is not None]
    if (options["ca_cert"] is None) != (options["ca_key"] is None):
        given_half, missing = ("--ca-cert", "--ca-key") if options["ca_key"] is None else ("--ca-key", "--ca-cert")
        raise Fault("UMB003", f"{given_half} without {missing}", "a CA signs by its key", f"add {missing} FILE")
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: certificates come from one place")
    return bool(given)


def certificates_from(options: dict[str, Any], spec: TunnelSpec, now: datetime) -> Certificates:
    """Make the certificates, or read them; without any source a new authority signs, and its key is forgotten.

    Raises:
        Fault: the address is not known yet, or what was given cannot serve it.
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
    from umbilical.cli.pki.backends import AUTO, chosen_backend
    from umbilical.pki.profiles import KeyType
    from umbilical.pki.tunnel_set import Leaf, Role, create_authority, load_authority

    with chosen_backend(AUTO) as backend:
        if pair is None:
            authority = create_authority(backend, now, lifetime, KeyType.RSA_2048)
        else:
            authority = load_authority(backend, pair, now)
        server = Leaf(Role.SERVER, KeyType.RSA_2048, (str(address),))
        agent = Leaf(Role.AGENT, KeyType.RSA_2048)
        issued = [authority.issue(leaf, now, lifetime) for leaf in (server, agent)]
    return Certificates(authority.bundle, *issued)


def _taken(folder: Path, address: IpAddress) -> Certificates:
    from umbilical.pki.directory import PairFiles, connect
    from umbilical.pki.tunnel_set import AUTHORITY_FILE, Role

    server, agent = (
        PairFiles(folder / role.certificate_file, folder / role.key_file) for role in (Role.SERVER, Role.AGENT)
    )
    pairs = [KeyPair(read_bytes(files.certificate), read_bytes(files.key)) for files in (server, agent)]
    authority = read_bytes(folder / AUTHORITY_FILE)
    refusal = connect(server, agent, folder / AUTHORITY_FILE, str(address))
    if refusal is not None:
        remedy = f"umbilical pki verify {folder} --address {address}"
        raise Fault("UMB117", f"an agent that dials {address} would not connect", refusal.why, remedy)
    return Certificates(authority, *pairs)
