"""No platform: whatever lies between the machines is the site's own."""

from typing import Final

from umbilical.firewall.platforms.own_network import own_network

PLATFORM: Final = own_network(
    "none",
    "Also for agent-based installs without a platform; there a control-plane host is the bootstrap machine",
)
