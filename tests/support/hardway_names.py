"""A small cluster's names for tests of the certificate table, without a configuration."""

from ipaddress import ip_address
from typing import Any

from umbilical.hardway.pki.row import ControlPlaneNode, HardwayNames, Scope


def member(id_: str, address: str) -> ControlPlaneNode:
    return ControlPlaneNode(id_, f"{id_}.ocp4.example.com", ip_address(address))


def names(scope: Scope = Scope.OPENSHIFT, **changes: Any) -> HardwayNames:
    values: dict[str, Any] = {
        "scope": scope,
        "api_name": "api.ocp4.example.com",
        "internal_api_name": "api-int.ocp4.example.com",
        "api_vip": ip_address("192.168.126.10"),
        "service_ip": ip_address("172.30.0.1"),
        "bootstrap": member("bootstrap", "192.168.126.100"),
        "masters": (member("master-0", "192.168.126.101"),),
    }
    return HardwayNames(**{**values, **changes})
