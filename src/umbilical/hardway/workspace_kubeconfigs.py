"""Administrators' kubeconfigs for the API at one address: by load balancer or master, with no resolver in between."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import API_PORT
from umbilical.hardway.ledger import RECORD
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.host.files import make_directory, write_file
from umbilical.manifests.objects import IpAddress, kubeconfig
from umbilical.manifests.tree import yaml_bytes

ADMIN: Final = "admin-kubeconfig-client"


def kubeconfigs(folder: Path, inputs: Inputs) -> Callable[[IpAddress | None], Path]:
    """Return what writes such a file, for its owner alone, and says where; without an address the load balancer's."""

    def write(address: IpAddress | None) -> Path:
        target = address or inputs.cluster.networks.api_vip
        path = make_directory(folder / RECORD) / f"{target}.kubeconfig"
        content = address_kubeconfig(inputs, target)
        if not path.is_file() or path.read_bytes() != content:
            write_file(path, content, overwrite=True)
        return path

    return write


def address_kubeconfig(inputs: Inputs, address: IpAddress) -> bytes:
    host = f"[{address}]" if address.version == 6 else str(address)
    authority = inputs.certificates.bundle(Bundle.SERVER_CA)
    url = f"https://{host}:{API_PORT}"
    return yaml_bytes(kubeconfig("admin", url, authority, inputs.certificates[ADMIN], inputs.cluster.name))
