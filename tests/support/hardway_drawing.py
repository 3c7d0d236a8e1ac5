"""Random clusters that make sense, as files that users would write: names, networks, addresses, counts, switches."""

import ipaddress
from typing import Any, Final

import yaml
from hypothesis import strategies
from hypothesis.strategies import DrawFn
from tests.support.hardway import RELEASE_IMAGE, SSH_KEY, VERSION

from umbilical.hardway.config.cluster import Cluster, ClusterProfile
from umbilical.hardway.config.reading import read_cluster
from umbilical.manifests.objects import IpNetwork

_LABEL: Final = strategies.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
_LAST: Final = 100
"""Fixed addresses have lower numbers, those of the range for live systems higher ones: any network here has 128."""


@strategies.composite
def documents(draw: DrawFn, profile: ClusterProfile) -> dict[str, Any]:
    """The content of cluster.yaml."""
    masters = draw(strategies.sampled_from((1, 3, 5)))
    workers = draw(strategies.integers(0, 3))
    networks = draw(_networks(profile))
    machine = ipaddress.ip_network(networks["machine"])
    numbers = draw(
        strategies.lists(
            strategies.integers(1, _LAST), min_size=4 + masters + workers, max_size=4 + masters + workers, unique=True
        )
    )
    places = [str(machine[number]) for number in numbers]
    networks |= {"gateway": places[0], "apiVip": places[1], "ingressVip": places[2]}
    document: dict[str, Any] = {
        "apiVersion": "umbilical.dev/v1alpha1",
        "kind": "HardwayCluster",
        "profile": profile.value,
        "name": draw(_LABEL),
        "baseDomain": ".".join(draw(strategies.lists(_LABEL, min_size=1, max_size=3))),
        "networks": networks,
        "nodes": {
            "bootstrap": {"address": places[3]},
            "masters": {"machines": [{"address": place} for place in places[4 : 4 + masters]]},
            "workers": {"count": workers, "machines": [{"address": place} for place in places[4 + masters :]]},
        },
        "access": {"sshKeys": [SSH_KEY]},
        "certificates": {"keyType": "ecdsa-p256"},
        "konnectivity": draw(strategies.sampled_from(("auto", "on", "off"))),
    }
    if profile is ClusterProfile.KUBERNETES:
        networks["dns"] = str(machine[_LAST + 1])
    else:
        networks["dns"] = places[0]
        document["release"] = {"image": RELEASE_IMAGE, "version": VERSION}
        networks["dhcp"] = {"first": str(machine[_LAST + 2]), "last": str(machine[_LAST + 20])}
        document["kubeProxy"] = draw(strategies.sampled_from(("auto", "on", "off")))
    return document


@strategies.composite
def clusters(draw: DrawFn, profile: ClusterProfile) -> Cluster:
    return read_cluster(yaml.safe_dump(draw(documents(profile))).encode()).cluster


@strategies.composite
def _networks(draw: DrawFn, profile: ClusterProfile) -> dict[str, Any]:
    """Three that do not overlap, of one address family."""
    if draw(strategies.booleans()):
        bits = draw(strategies.integers(1, 0xFFFE))
        return {
            "machine": f"fd00:{bits:x}::/{draw(strategies.sampled_from((64, 96, 112)))}",
            "pods": f"fd01:{bits:x}::/48",
            "services": f"fd02:{bits:x}::/112",
            "hostPrefix": 64,
        }
    machine = draw(_piece("192.168.0.0/16", 20, 25))
    pods = draw(_piece("10.128.0.0/9", 12, 18))
    host = draw(strategies.integers(22, 24 if profile is ClusterProfile.OPENSHIFT else 25))
    return {"machine": machine, "pods": pods, "services": draw(_piece("172.16.0.0/12", 16, 24)), "hostPrefix": host}


@strategies.composite
def _piece(draw: DrawFn, whole: str, least: int, most: int) -> str:
    network: IpNetwork = ipaddress.ip_network(whole)
    prefix = draw(strategies.integers(least, most))
    number = draw(strategies.integers(0, 2 ** (prefix - network.prefixlen) - 1))
    start = int(network.network_address) + number * 2 ** (network.max_prefixlen - prefix)
    return f"{ipaddress.ip_address(start)}/{prefix}"
