"""Temporary parts of the cluster: the tunnel, and on OpenShift kube-proxy.

The tunnel's certificates are made on the bootstrap node, and agents get them in a Secret. Removal follows exactly the
artifact that the lint has checked.
"""

import base64
from typing import Any, Final

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, read_document
from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.static_pods.pods import REMOVALS_PATH, TUNNEL, RemovalStep, read_removals
from umbilical.hardway.artifacts.tunnel import AGENT_PKI, KUBERNETES_NAMESPACE
from umbilical.hardway.kube import delete_if_there
from umbilical.hardway.machines.interface import Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition
from umbilical.host.waiting import NotYet


def removal(site: Site, what: str) -> RemovalStep | None:
    """Find the removal steps of a part; None if there are none. Raises HardwayError: UMB760, an invalid artifact."""
    if REMOVALS_PATH not in site.assets:
        # Without the release nothing temporary is rendered yet.
        return None
    try:
        steps = read_removals(site.content(REMOVALS_PATH))
    except ValueError as error:
        raise HardwayError("UMB760", f"could not read {REMOVALS_PATH}", str(error), "umbilical stage run 07") from None
    return next((step for step in steps if step.what == what), None)


def remove(site: Site, step: RemovalStep) -> None:
    """Delete the namespace, then files on nodes, then run the commands. Idempotent.

    Raises HardwayError: UMB761, a command on a node failed.
    """
    if step.namespace:
        site.api().call(lambda client: delete_if_there(client, objects.NAMESPACE, step.namespace))
    for node, path in step.files:
        if site.machines.power(node) is Power.ON:
            _run(site, node, ["rm", "-f", path])
    for node, words in step.commands:
        _run(site, node, words)


def _run(site: Site, node: str, words: "list[str] | tuple[str, ...]") -> None:
    done = site.machines.run(node, words)
    if done.exit_code != 0:
        raise HardwayError("UMB761", f"{words[0]} failed on {node}", done.complaint, f"on {node}: {' '.join(words)}")


_FILES: Final = ("ca.crt", "tls.crt", "tls.key")
"""Keys of the Secret, and files on the bootstrap node."""


def namespace(site: Site) -> str:
    """Return the namespace of the agents, which is deleted with the tunnel."""
    return for_shape(Shape.OPENSHIFT).namespace if site.cluster.is_openshift else KUBERNETES_NAMESPACE


def hand_out_certificates(site: Site) -> None:
    """Create the agents' Secret from files on the bootstrap node. Raises NotYet: the files do not exist yet."""
    content = {}
    for file in _FILES:
        found = site.machines.read(site.cluster.bootstrap.id, f"{AGENT_PKI}/{file}")
        if not found:
            raise NotYet(f"{AGENT_PKI}/{file} does not exist on the bootstrap node")
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


def agents_condition(count: int) -> Condition:
    """The agents of all nodes so far are ready."""

    def probe(site: Site) -> str:
        place = namespace(site)
        found = site.api().call(lambda client: objects.get(client, objects.DAEMON_SET, AGENT_NAME, place))
        if found is None:
            raise NotYet(f"there is no DaemonSet {place}/{AGENT_NAME}")
        status = found.get("status") or {}
        ready, wanted = int(status.get("numberReady", 0)), int(status.get("desiredNumberScheduled", 0))
        if ready < count or ready < wanted:
            raise NotYet(f"{ready} of {max(wanted, count)} agents are ready")
        return f"{ready} agents"

    why = "without an agent kube-apiserver on the bootstrap node cannot reach pods, and webhooks time out"
    fix = f"kubectl describe daemonset {AGENT_NAME} -A; kubectl logs of an agent"
    return Condition("tunnel-agents", "the tunnel's agents are ready", why, fix, probe)


def cut(site: Site) -> None:
    """Remove the tunnel: the namespace with its agents and their Secret, and the server's static pod."""
    step = removal(site, TUNNEL)
    if step is not None:
        remove(site, step)


def gone_condition() -> Condition:
    def probe(site: Site) -> str:
        place = namespace(site)
        found = site.api().call(lambda client: objects.get_metadata(client, objects.NAMESPACE, place))
        if found is not None:
            raise NotYet(f"the namespace {place} is still there")
        return "its namespace is deleted"

    why = "its certificates expire after a day; agents that are left then fail and raise alerts"
    return Condition("tunnel-gone", "the tunnel is removed", why, "umbilical bootstrap teardown", probe)
