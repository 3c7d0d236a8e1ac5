"""All platforms by name. Installers' names that have no module of their own are sent to the one they behave like."""

from typing import Final

from umbilical.fault import RenderError
from umbilical.firewall.platforms import aws, azure, gcp, ibmcloud, openstack, own_network, powervs
from umbilical.firewall.platforms.platform import Platform

PLATFORMS: Final[dict[str, Platform]] = {
    platform.name: platform
    for platform in (
        *(module.PLATFORM for module in (aws, azure, gcp, ibmcloud, powervs, openstack)),
        *(own_network.VSPHERE, own_network.NUTANIX, own_network.BAREMETAL, own_network.NONE, own_network.EXTERNAL),
        *(module.UPI_PLATFORM for module in (aws, azure, gcp, openstack)),
    )
}
ALIKE: Final = {"powervc": "openstack", "ovirt": "none"}
"""PowerVC is driven through OpenStack's API; on oVirt the installer makes no rules."""


def platform_of(name: str) -> Platform:
    """Find a platform by the name that install-config or the user gives it. Raises RenderError: nobody knows it."""
    found = PLATFORMS.get(ALIKE.get(name, name))
    if found is None:
        raise RenderError(
            "UMB160", f"no platform {name!r}", f"known: {', '.join(PLATFORMS)}", "umbilical firewall list"
        )
    return found
