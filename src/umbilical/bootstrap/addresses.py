"""Where the bootstrap machine is: by which address SSH reaches it, and by which the agents do."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from umbilical.bootstrap.documents import Document, broken
from umbilical.fault import BootstrapError
from umbilical.manifests.values import IpAddress

# Their installers open SSH from outside by a public address of the machine, so that an internal one would not answer.
NEEDS_EXTERNAL: Final = frozenset({"aws", "gcp"})
HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)*")
SSH_HOST: Final = "pass it yourself: --ssh-host ADDRESS"


@dataclass(frozen=True)
class BootstrapAddresses:
    ssh: str
    """An address or a name that SSH is answered at."""
    internal: tuple[IpAddress, ...]
    """What the machine is called inside its network, in the order of its status."""

    def node_ip(self, *, use_ipv6: bool) -> IpAddress | None:
        """Choose the address that agents dial; None when the machine has none of that family."""
        version = 6 if use_ipv6 else 4
        return next((address for address in self.internal if address.version == version), None)


def addresses_of(machine: Document, origin: Path, platform: str, install_config: Document | None) -> BootstrapAddresses:
    """Apply the installer's own rule to a Machine object.

    Raises:
        BootstrapError: it has no address yet, or none that SSH can use from outside.
    """
    external = _of_type(machine, "ExternalIP", origin)
    internal = _of_type(machine, "InternalIP", origin)
    return BootstrapAddresses(_ssh_address(external, internal, origin, platform, install_config or {}), internal)


def _ssh_address(
    external: tuple[IpAddress, ...],
    internal: tuple[IpAddress, ...],
    origin: Path,
    platform: str,
    install_config: Document,
) -> str:
    is_public = install_config.get("publish") != "Internal"
    if platform == "azure" and is_public:
        # The load balancer of the API forwards its port 22 to the bootstrap machine, which has no public address.
        return _api_name(install_config, origin)
    if platform in NEEDS_EXTERNAL and is_public and not external:
        raise _nowhere(origin, f"a public {platform} installation gives it an ExternalIP, and there is none")
    choice = external + internal
    if platform == "vsphere":
        choice = tuple(address for address in choice if address.version == 4) or choice
    if not choice:
        raise _nowhere(origin, "its status lists no ExternalIP and no InternalIP")
    return str(choice[0])


def _api_name(install_config: Document, origin: Path) -> str:
    metadata = install_config.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    host = f"api.{name}.{install_config.get('baseDomain')}"
    # The name becomes an argument of ssh: what could be read as an option must not come through.
    if not name or not install_config.get("baseDomain") or not HOST_NAME.fullmatch(host):
        raise _nowhere(origin, "SSH goes by the API's name on azure, and install-config tells no usable one")
    return host


def _of_type(machine: Document, kind: str, origin: Path) -> tuple[IpAddress, ...]:
    status = machine.get("status")
    listed = status.get("addresses") if isinstance(status, dict) else None
    if listed is not None and not isinstance(listed, list):
        raise broken(origin, "status.addresses is no list")
    return tuple(_address(item, origin) for item in listed or () if isinstance(item, dict) and item.get("type") == kind)


def _address(item: dict[Any, Any], origin: Path) -> IpAddress:
    try:
        return ipaddress.ip_address(str(item.get("address")))
    except ValueError:
        raise broken(origin, f"{item.get('address')!r} in status.addresses is no IP address") from None


def _nowhere(origin: Path, why: str) -> BootstrapError:
    return BootstrapError("UMB172", "the bootstrap machine's address is not known", f"{origin.name}: {why}", SSH_HOST)
