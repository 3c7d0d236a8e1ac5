"""A control plane's spec and certificates for tests: small, and of any IP family."""

import ipaddress
from datetime import UTC, datetime
from typing import Any

from umbilical.manifests.control_plane_spec import ControlPlaneImages, ControlPlaneSpec
from umbilical.pki.control_plane_set import (
    ControlPlaneNames,
    ControlPlaneSet,
    NodeNames,
    first_addresses,
    make_control_plane_set,
)
from umbilical.pki.profiles import KeyType

IPV4 = ("10.90.0.1", ("10.93.0.0/16",), ("10.92.0.0/16",))
IPV6 = ("fd90::1", ("fd93::/112",), ("fd92::/48",))
DUAL = ("fd90::1", ("fd93::/112", "10.93.0.0/16"), ("fd92::/48", "10.92.0.0/16"))


def control_plane_spec(family: tuple[str, tuple[str, ...], tuple[str, ...]] = IPV4, **changes: Any) -> ControlPlaneSpec:
    address, services, pods = family
    fields: dict[str, Any] = {
        "node_name": "bootstrap",
        "node_ip": ipaddress.ip_address(address),
        "service_networks": tuple(map(ipaddress.ip_network, services)),
        "pod_networks": tuple(map(ipaddress.ip_network, pods)),
        "images": ControlPlaneImages.tagged("localhost", "lab"),
    }
    return ControlPlaneSpec(**{**fields, **changes})


def control_plane_names(spec: ControlPlaneSpec, *nodes: NodeNames) -> ControlPlaneNames:
    address = str(spec.node_ip)
    return ControlPlaneNames(
        node_ips=(address,), service_ips=first_addresses(spec.service_networks), etcd_ips=(address,), nodes=nodes
    )


def control_plane_set(
    spec: ControlPlaneSpec, *nodes: NodeNames, key_type: KeyType = KeyType.ECDSA_P256
) -> ControlPlaneSet:
    return make_control_plane_set(control_plane_names(spec, *nodes), datetime.now(UTC), key_type=key_type)
