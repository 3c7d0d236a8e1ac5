"""Nodes in a real API: a lease that is old, or a kubelet of a strange version, is no healthy node's."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.api_stock import Stock, node
from tests.support.control_plane import PROGRAMS

from umbilical.checks.check import Outcome
from umbilical.hardway.node_health import LEASES, alive_sight, version_sight
from umbilical.hardway.site import Site

pytestmark = pytest.mark.real(*PROGRAMS)


def lease(site: Site, name: str, seconds: int) -> dict[str, Any]:
    moment = (site.now() - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {"name": name, "namespace": LEASES}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {"renewTime": moment},
    }


def versioned(site: Site, version: str) -> list[dict[str, Any]]:
    found = [node(one.name, str(one.address)) for one in site.cluster.members]
    for one in found:
        one["status"]["nodeInfo"] = {
            "kubeletVersion": version,
            **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), ""),
            **dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion", "operatingSystem", "architecture"), ""),
        }
    return found


def test_a_node_is_alive_while_it_renews_its_lease(site: Site, shelf: Stock) -> None:
    sight = alive_sight(site.cluster.members)
    first, second = (one.name for one in site.cluster.members)
    shelf.put(lease(site, first, 5))
    assert sight.check.judge(site).evidence == f"{second}: it has no lease"
    shelf.put(lease(site, second, 100))
    assert sight.check.judge(site).evidence.startswith(f"{second}: its lease is 10")
    shelf.put(lease(site, second, 1))
    assert sight.check.judge(site).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("v1.36.0", Outcome.PASSED),
        ("v1.33.9", Outcome.PASSED),
        ("v1.32.0", Outcome.FAILED),
        ("v1.37.0", Outcome.FAILED),
        ("", Outcome.FAILED),
        ("made-up", Outcome.FAILED),
    ],
)
def test_a_kubelet_is_neither_too_old_nor_newer_than_the_api(
    site: Site, shelf: Stock, version: str, outcome: Outcome
) -> None:
    shelf.put(*versioned(site, version))
    assert version_sight(site.cluster.members).check.judge(site).outcome is outcome
