"""All platforms by name. Installers' names that have no module of their own are sent to the one they behave like."""

from typing import Final

from umbilical.fault import RenderError
from umbilical.firewall.platforms import (
    aws,
    aws_upi,
    azure,
    azure_upi,
    baremetal,
    external,
    gcp,
    gcp_upi,
    ibmcloud,
    none,
    nutanix,
    openstack,
    openstack_upi,
    powervs,
    vsphere,
)
from umbilical.firewall.platforms.platform import Platform

PLATFORMS: Final[dict[str, Platform]] = {
    module.PLATFORM.name: module.PLATFORM
    for module in (
        *(aws, azure, gcp, ibmcloud, powervs, openstack, vsphere, nutanix, baremetal, none, external),
        *(aws_upi, azure_upi, gcp_upi, openstack_upi),
    )
}
ALIKE: Final = {"powervc": "openstack", "ovirt": "none"}
"""PowerVC is driven through OpenStack's API; on oVirt the installer makes no rules."""


def platform_of(name: str) -> Platform:
    """Find a platform by the name that install-config or the user gives it.

    Raises:
        RenderError: nobody knows it.
    """
    found = PLATFORMS.get(ALIKE.get(name, name))
    if found is None:
        raise RenderError(
            "UMB160", f"no platform {name!r}", f"known: {', '.join(PLATFORMS)}", "umbilical firewall list"
        )
    return found
