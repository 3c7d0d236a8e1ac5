"""All platforms by name. An installer's name without its own module maps to the platform that it behaves like."""

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
ALIKE: Final = {"powervc": "openstack", "ovirt": "none", "libvirt": "none"}
"""PowerVC uses OpenStack's API; on oVirt and libvirt the installer creates no rules."""


NAMES: Final = (*PLATFORMS, *ALIKE)


def platform_of(name: str) -> Platform:
    """Find a platform by its name in install-config or options, in any letter case.

    Raises RenderError: it is unknown.
    """
    lower = name.lower()
    found = PLATFORMS.get(ALIKE.get(lower, lower))
    if found is None:
        raise RenderError(
            "UMB160", f"there is no platform {name!r}", f"known: {', '.join(NAMES)}", "umbilical firewall list"
        )
    return found
