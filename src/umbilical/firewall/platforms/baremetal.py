"""Bare metal: the bootstrap machine is a guest on the provisioning host, which may filter what it bridges."""

from typing import Final

from umbilical.firewall.platforms.own_network import own_network

PLATFORM: Final = own_network(
    "baremetal",
    "The bootstrap machine is a guest of the host that runs the installer: look at that host's filter too",
)
