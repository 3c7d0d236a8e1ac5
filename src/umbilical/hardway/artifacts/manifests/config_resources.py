"""The cluster's configuration as OpenShift keeps it: one object named `cluster` for each topic."""

from typing import Final

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.feature_gate import CONFIG_API
from umbilical.hardway.artifacts.manifests.objects import head
from umbilical.hardway.config.cluster import Cluster
from umbilical.manifests.objects import Object, manifest

NETWORK_TYPE: Final = "OVNKubernetes"
HIGHLY_AVAILABLE: Final = "HighlyAvailable"
SINGLE_REPLICA: Final = "SingleReplica"
_CONTROL_PLANE: Final = {1: SINGLE_REPLICA, 2: "DualReplica"}


def control_plane_topology(masters: int) -> str:
    return _CONTROL_PLANE.get(masters, HIGHLY_AVAILABLE)


def infrastructure_topology(masters: int, workers: int) -> str:
    """Say how many routers and the like there may be: without workers they run on masters.

    There is no DualReplica here, the API refuses it: two masters are enough for two routers.
    """
    return SINGLE_REPLICA if (workers or masters) == 1 else HIGHLY_AVAILABLE


def infrastructure(inputs: Inputs) -> list[Object]:
    cluster = inputs.cluster
    status = {
        "infrastructureName": inputs.identity.infrastructure_name,
        "apiServerURL": cluster.api_url,
        # The field's name is the one that Go's tag gives it; the Go field itself is called ...URL.
        "apiServerInternalURI": cluster.internal_api_url,
        "etcdDiscoveryDomain": "",
        "platform": "None",
        "platformStatus": {"type": "None"},
        "controlPlaneTopology": control_plane_topology(len(cluster.masters)),
        "infrastructureTopology": infrastructure_topology(len(cluster.masters), len(cluster.workers)),
        "cpuPartitioning": "None",
    }
    return [_config("Infrastructure", {"platformSpec": {"type": "None"}}, status)]


def network(inputs: Inputs) -> list[Object]:
    spec = {**_networks(inputs.cluster), "networkType": NETWORK_TYPE, "externalIP": {"policy": {}}}
    return [_config("Network", spec)]


def operator_network(inputs: Inputs) -> list[Object]:
    spec = {**_networks(inputs.cluster), "defaultNetwork": {"type": NETWORK_TYPE}, "managementState": "Managed"}
    return [manifest("operator.openshift.io/v1", "Network", head("cluster"), spec=spec)]


def dns(inputs: Inputs) -> list[Object]:
    return [_config("DNS", {"baseDomain": inputs.cluster.domain})]


def ingress(inputs: Inputs) -> list[Object]:
    return [_config("Ingress", {"domain": inputs.cluster.apps_domain})]


def proxy(_: Inputs) -> list[Object]:
    return [_config("Proxy", {})]


def scheduler(inputs: Inputs) -> list[Object]:
    return [_config("Scheduler", {"mastersSchedulable": not inputs.cluster.workers, "policy": {"name": ""}})]


def _networks(cluster: Cluster) -> Object:
    pods = {"cidr": str(cluster.networks.pods), "hostPrefix": cluster.networks.host_prefix}
    return {"clusterNetwork": [pods], "serviceNetwork": [str(cluster.networks.services)]}


def _config(kind: str, spec: Object, status: Object | None = None) -> Object:
    found = manifest(CONFIG_API, kind, head("cluster"), spec=spec)
    return found if status is None else {**found, "status": status}
