"""The tunnel while the cluster is born: certificates on the bootstrap node, a Secret of them for agents."""

import base64
from typing import Any, Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, read_document
from umbilical.hardway.artifacts.static_pods.removals import TUNNEL
from umbilical.hardway.artifacts.static_pods.tunnel import AGENT_PKI
from umbilical.hardway.artifacts.tunnel import KUBERNETES_NAMESPACE
from umbilical.hardway.looking import Sight
from umbilical.hardway.removing import removal, remove
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet

_FILES: Final = ("ca.crt", "tls.crt", "tls.key")
"""Keys of the Secret, and files on the bootstrap node."""


def namespace(site: Site) -> str:
    """Say where the agents are; it is the tunnel's own, and goes with it."""
    return for_shape(Shape.OPENSHIFT).namespace if site.cluster.is_openshift else KUBERNETES_NAMESPACE


def hand_out_certificates(site: Site) -> None:
    """Give the agents their Secret. Its content goes from the node to the API and lies nowhere else.

    Raises:
        NotYet: the node has not made them.
    """
    content = {}
    for file in _FILES:
        found = site.machines.read(site.cluster.bootstrap.id, f"{AGENT_PKI}/{file}")
        if not found:
            raise NotYet(f"no {AGENT_PKI}/{file} on the bootstrap node")
        content[file] = base64.b64encode(found).decode()
    document = read_document(_secret(namespace(site), content))
    assert document is not None
    site.api().call(lambda client: Applier(client, force=True).apply(document))


def _secret(place: str, content: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": AGENT_SECRET, "namespace": place},
        "type": "kubernetes.io/tls",
        "data": content,
    }


def agents_sight(count: int) -> Sight:
    """The agents of all nodes that are there so far."""

    def look(site: Site) -> str:
        place = namespace(site)
        found = site.api().call(lambda client: objects.get(client, objects.DAEMON_SET, AGENT_NAME, place))
        if found is None:
            raise NotYet(f"there is no DaemonSet {place}/{AGENT_NAME}")
        status = found.get("status") or {}
        ready, wanted = int(status.get("numberReady", 0)), int(status.get("desiredNumberScheduled", 0))
        if ready < count or ready < wanted:
            raise NotYet(f"{ready} of {max(wanted, count)} agents are ready")
        return f"{ready} agents"

    return Sight(
        "tunnel-agents",
        "the tunnel's agents are ready",
        "without an agent kube-apiserver on the bootstrap node reaches no pod: webhooks time out",
        f"kubectl describe daemonset {AGENT_NAME} -A; then the log of an agent",
        look,
    )


def cut(site: Site) -> None:
    """Remove the tunnel: the namespace with its agents and their Secret, and the server's static pod."""
    step = removal(site, TUNNEL)
    if step is not None:
        remove(site, step)


def gone_sight() -> Sight:
    def look(site: Site) -> str:
        place = namespace(site)
        found = site.api().call(lambda client: objects.get_metadata(client, objects.NAMESPACE, place))
        if found is not None:
            raise NotYet(f"the namespace {place} is still there")
        return "nothing of it is left"

    return Sight(
        "tunnel-gone",
        "the tunnel is cut",
        "its certificates live for a day; what is left of it then fails and alarms",
        "umbilical bootstrap teardown",
        look,
    )
