"""External platforms: the provider's cloud is not known to the installer, and its rules are the user's to make."""

from typing import Final

from umbilical.firewall.platforms.own_network import own_network

PLATFORM: Final = own_network(
    "external",
    "Where the provider has security groups, make the rule there: TCP to the port, nodes to the bootstrap machine",
)
