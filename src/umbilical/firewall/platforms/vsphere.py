"""vSphere: the installer makes machines and no firewall rules; an NSX policy between them is the site's own."""

from typing import Final

from umbilical.firewall.platforms.own_network import own_network

PLATFORM: Final = own_network(
    "vsphere",
    "A distributed firewall (NSX) needs a rule of its own: TCP to the port, nodes to the bootstrap machine",
)
