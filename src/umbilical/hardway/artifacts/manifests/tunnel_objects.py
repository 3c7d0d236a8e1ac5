"""The tunnel's part in the cluster, all but its Secret: the certificates in it are made on the bootstrap node."""

from umbilical.bootstrap.render.objects import agent_daemon_set, namespace
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.tunnel import tunnel_spec
from umbilical.manifests.objects import Object


def tunnel_objects(inputs: Inputs) -> list[Object]:
    if not inputs.has_tunnel:
        return []
    spec = tunnel_spec(inputs)
    return [namespace(spec), agent_daemon_set(spec)]
