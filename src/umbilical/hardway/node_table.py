"""Waits of stages on nodes, with a table beside them: what each node has come to, in a line of its own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import Fault
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.looking import Look, Sight
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet

SIGNALS: Final = ("registered", "ready", "pods")
LOOKS_BETWEEN: Final = 5
"""All pods of a cluster are a large answer; nobody reads a table that changes each second."""


def see_nodes(site: Site, seconds: float, *sights: Sight) -> None:
    """Wait for one after the other, each for as long, and show meanwhile, and at the end, how the nodes are."""
    for sight in sights:
        replace(sight, look=_showing(sight.look)).wait(site, seconds)
    show(site)


def show(site: Site) -> None:
    """Tell the reporter. An API that does not answer is the business of whoever waits for it."""
    try:
        known = kube.nodes(site)
        pods = site.api().call(_all_pods)
    except Fault:
        return
    members = site.cluster.members
    cells = {(node.id, signal): text for node in members for signal, text in _row(node, known, pods).items()}
    site.reporter.table([node.id for node in members], SIGNALS, cells)


def _showing(look: Look) -> Look:
    looks = 0

    def looking(site: Site) -> str:
        nonlocal looks
        try:
            return look(site)
        except (NotYet, Fault):
            if looks % LOOKS_BETWEEN == 0:
                show(site)
            looks += 1
            raise

    return looking


async def _all_pods(client: ApiClient) -> list[Json]:
    return await objects.list_objects(client, objects.POD)


def _row(node: Node, known: dict[str, Json], pods: Sequence[Json]) -> dict[str, str]:
    item = known.get(node.name)
    if item is None:
        return dict(zip(SIGNALS, ("no", "-", "-"), strict=True))
    here = [pod for pod in pods if objects.field(pod, "spec", "nodeName") == node.name]
    ready = "yes" if kube.condition(item, "Ready") == "True" else "no"
    return dict(zip(SIGNALS, ("yes", ready, f"{sum(map(kube.is_pod_ready, here))} of {len(here)}"), strict=True))
