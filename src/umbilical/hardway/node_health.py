"""Whether nodes that call themselves Ready are alive, and of a version that the API server may have."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.looking import Sight
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet

LEASES: Final = "kube-node-lease"
MAX_AGE: Final = timedelta(seconds=40)
"""kube-controller-manager's own patience before it calls a node unknown; kubelets renew every ten seconds."""
MAX_SKEW: Final = 3
"""Minor versions that a kubelet may be behind; it may never be ahead."""
_MINOR: Final = re.compile(r"v?1\.(\d+)")


def alive_sight(nodes: Sequence[Node]) -> Sight:
    def look(site: Site) -> str:
        found = site.api().call(lambda client: objects.list_objects(client, kube.LEASE, LEASES))
        renewed = {str(objects.metadata(one).get("name")): objects.field(one, "spec", "renewTime") for one in found}
        for node in nodes:
            age = _age(renewed.get(node.name), site.now())
            if age is None or age > MAX_AGE:
                told = "it has no lease" if age is None else f"its lease is {age.seconds} s old"
                raise NotYet(f"{node.name}: {told}")
        return f"{len(nodes)} leases are fresh"

    return Sight(
        "nodes-alive",
        "every node renews its lease",
        "a node stays Ready for a while after its kubelet has died",
        "kubectl -n kube-node-lease get leases; on the node: journalctl -u kubelet",
        look,
    )


def version_sight(nodes: Sequence[Node]) -> Sight:
    def look(site: Site) -> str:
        api = site.api().call(_api_version)
        known = kube.nodes(site)
        for node in nodes:
            version = str(objects.field(known.get(node.name) or {}, "status", "nodeInfo", "kubeletVersion") or "")
            behind = _minor(api) - _minor(version)
            if not 0 <= behind <= MAX_SKEW:
                raise NotYet(f"the kubelet of {node.name} is {version or 'of no version'}, kube-apiserver is {api}")
        return api

    return Sight(
        "kubelet-versions",
        f"kubelets are at most {MAX_SKEW} minor versions behind kube-apiserver, and never ahead",
        "what is newer asks for what the API does not know",
        "kubectl get nodes; kubectl version",
        look,
    )


async def _api_version(client: ApiClient) -> str:
    return str((await client.request("GET", "/version")).get("gitVersion"))


def _minor(version: str) -> int:
    found = _MINOR.match(version)
    # Far from every version that there is, so that what cannot be read fits none.
    return int(found.group(1)) if found else -1000


def _age(text: object, now: datetime) -> timedelta | None:
    try:
        return now - datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
