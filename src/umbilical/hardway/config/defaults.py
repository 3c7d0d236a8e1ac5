"""What a cluster is where its file says nothing: the values of the log that all this began with."""

import ipaddress
from enum import Enum, auto
from typing import Final

from umbilical.hardway.config.cluster import MachineSize, Role
from umbilical.manifests.objects import IpNetwork

NAME: Final = "ocp4"
LAB_NAME: Final = "lab"
BASE_DOMAIN: Final = "example.com"
RELEASE_VERSION: Final = "4.18.0"
RELEASE_IMAGE: Final = (
    "quay.io/openshift-release-dev/ocp-release@sha256:5bca02661d61955b62889e7e2e648905b7202d5788f5ba5ab69055a73dffdb5c"
)
# What `make peers` builds.
UPSTREAM_VERSION: Final = "v1.36.3"
LAB_REPOSITORY: Final = "localhost"
LAB_TAG: Final = "lab"

MACHINE_NETWORK: Final[IpNetwork] = ipaddress.ip_network("192.168.126.0/24")
POD_NETWORK: Final[IpNetwork] = ipaddress.ip_network("10.128.0.0/14")
SERVICE_NETWORK: Final[IpNetwork] = ipaddress.ip_network("172.30.0.0/16")
HOST_PREFIX: Final = 23
LAB_HOST_PREFIX: Final = 24


class Place(Enum):
    """Who has a fixed number in the machine network."""

    GATEWAY = auto()
    LAB_HOST = auto()
    """The node of the lab that stands for the virtualisation host: load balancer and resolver."""
    API_VIP = auto()
    INGRESS_VIP = auto()
    BOOTSTRAP = auto()
    MASTER = auto()
    WORKER = auto()
    DHCP_FIRST = auto()
    DHCP_LAST = auto()


NUMBERS: Final = {
    Place.GATEWAY: 1,
    Place.LAB_HOST: 2,
    Place.API_VIP: 10,
    Place.INGRESS_VIP: 11,
    Place.BOOTSTRAP: 100,
    Place.MASTER: 101,
    Place.WORKER: 110,
    Place.DHCP_FIRST: 200,
    Place.DHCP_LAST: 254,
}

SIZES: Final = {
    Role.BOOTSTRAP: MachineSize(4, 16384, 100),
    Role.MASTER: MachineSize(4, 16384, 100),
    Role.WORKER: MachineSize(4, 8192, 100),
}
