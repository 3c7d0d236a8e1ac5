"""Specs of hosted control planes for tests."""

import ipaddress
from typing import Any

from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import (
    AggregatedApi,
    ApiGroup,
    HostedImages,
    HostedNetworks,
    HostedSpec,
    Publishing,
    Strategy,
)

IMAGE = "registry.example/umbilical:1"


def hosted_spec(**changes: Any) -> HostedSpec:
    """A control plane with all components and an aggregated API."""
    values: dict[str, Any] = {
        "name": "guest",
        "namespace": "clusters-guest",
        "images": HostedImages(IMAGE, IMAGE, IMAGE),
        "publishing": Publishing(Strategy.ROUTE, "konnectivity.guest.example", 443),
        "networks": HostedNetworks(
            cluster=(ipaddress.ip_network("10.132.0.0/14"),),
            service=(ipaddress.ip_network("172.31.0.0/16"),),
            machine=(ipaddress.ip_network("192.168.10.0/24"),),
        ),
        "aggregated_apis": (
            AggregatedApi(
                "openshift-apiserver", (ipaddress.ip_address("172.30.12.7"),), (ApiGroup("apps.openshift.io"),)
            ),
        ),
        "aggregated_authority": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
        "components": names.COMPONENTS,
    }
    return HostedSpec(**(values | changes))
