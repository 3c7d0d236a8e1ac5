"""OpenShift's configuration objects (config.openshift.io), and the objects that the installer leaves.

The status of FeatureGate `cluster` lists the gates of this version; every operator reads it.
"""

import re
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import Inputs, ReleasePayload
from umbilical.hardway.artifacts.manifests.objects import CONFIG, ETCD, head, plain_secret
from umbilical.hardway.config.cluster import Cluster
from umbilical.manifests.objects import Object, config_map, manifest, secret
from umbilical.manifests.tree import yaml_bytes

GATES_FILE: Final = re.compile(r"(?:.*[_/])?featureGate-(?:([0-9]+)(?:-([0-9]+))?-)?SelfManagedHA-Default\.yaml")
"""File names of newer releases contain major versions: `featureGate-4-10-...` is for 4 to 10, `featureGate-11-...`."""
CONFIG_API: Final = "config.openshift.io/v1"


def feature_gate(inputs: Inputs) -> list[Object]:
    """Return the same object as the release's render step. Raises RenderError: UMB719, the release has no gates."""
    gates = _release_gates(inputs.payload)
    entry = {"version": inputs.payload.version, "enabled": gates["enabled"], "disabled": gates["disabled"]}
    annotations = {"include.release.openshift.io/self-managed-high-availability": "true"}
    return [
        manifest(
            CONFIG_API,
            "FeatureGate",
            head("cluster", annotations=annotations),
            spec={"featureSet": ""},
            status={"featureGates": [entry]},
        )
    ]


def is_for(name: str, major: int) -> bool:
    """Tell whether a file of this name has the gates of self-managed clusters of this major version."""
    found = GATES_FILE.fullmatch(name)
    if found is None or found[1] is None:
        return found is not None
    return int(found[1]) <= major <= int(found[2] or found[1])


def _release_gates(payload: ReleasePayload) -> dict[str, list[Object]]:
    major = int(payload.version.partition(".")[0])
    files = [name for name in sorted(payload.manifests) if is_for(name, major)]
    if len(files) != 1:
        raise _unusable(f"{len(files)} files match featureGate-*SelfManagedHA-Default.yaml for {major}.x, not one")
    try:
        value = yaml.safe_load(payload.manifests[files[0]])
        (entry,) = value["status"]["featureGates"]
        return {
            name: sorted(map(_gate, entry[name]), key=lambda gate: gate["name"]) for name in ("enabled", "disabled")
        }
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, TypeError):
        raise _unusable(f"{files[0]} has no status with one list of gates") from None


def _gate(value: Any) -> dict[str, str]:
    if not isinstance(value["name"], str):
        raise ValueError("a gate's name is not a text")
    return {"name": value["name"]}


def _unusable(why: str) -> RenderError:
    remedy = "extract the release again: umbilical explain 04"
    return RenderError("UMB719", "the feature gates of the release were not found", why, remedy)


NETWORK_TYPE: Final = "OVNKubernetes"
HIGHLY_AVAILABLE: Final = "HighlyAvailable"
SINGLE_REPLICA: Final = "SingleReplica"
_CONTROL_PLANE: Final = {1: SINGLE_REPLICA, 2: "DualReplica"}


def control_plane_topology(masters: int) -> str:
    return _CONTROL_PLANE.get(masters, HIGHLY_AVAILABLE)


def infrastructure_topology(masters: int, workers: int) -> str:
    """Return the topology of routers and other infrastructure pods, which run on masters if there are no workers.

    The API does not allow DualReplica here: two masters are enough for two routers.
    """
    return SINGLE_REPLICA if (workers or masters) == 1 else HIGHLY_AVAILABLE


def infrastructure(inputs: Inputs) -> list[Object]:
    cluster = inputs.cluster
    status = {
        "infrastructureName": inputs.identity.infrastructure_name,
        "apiServerURL": cluster.api_url,
        # The JSON field ends with URI, although the Go field ends with URL.
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


ETCD_BOOTSTRAP: Final = "alpha.installer.openshift.io/etcd-bootstrap"
DOCKER_CONFIG: Final = "kubernetes.io/dockerconfigjson"


def install_config(cluster: Cluster) -> Object:
    """Return the install-config without the pull secret: many users may read the ConfigMap."""
    networks = cluster.networks
    found: Object = {
        "apiVersion": "v1",
        "baseDomain": cluster.base_domain,
        "metadata": {"name": cluster.name},
        "controlPlane": _pool("master", len(cluster.masters)),
        "compute": [_pool("worker", len(cluster.workers))],
        "networking": {
            "networkType": NETWORK_TYPE,
            "clusterNetwork": [{"cidr": str(networks.pods), "hostPrefix": networks.host_prefix}],
            "serviceNetwork": [str(networks.services)],
            "machineNetwork": [{"cidr": str(networks.machine)}],
        },
        "platform": {"none": {}},
        "publish": "External",
    }
    keys = "\n".join(cluster.access.ssh_keys)
    return {**found, "sshKey": keys} if keys else found


def cluster_config(inputs: Inputs) -> list[Object]:
    text = yaml_bytes(install_config(inputs.cluster)).decode()
    return [config_map(head("cluster-config-v1", "kube-system"), {"install-config": text})]


def etcd_endpoints(inputs: Inputs) -> list[Object]:
    """Name the bootstrap member in an annotation: data is for members by id, and the operator fills it."""
    annotations = {ETCD_BOOTSTRAP: str(inputs.cluster.bootstrap.address)}
    return [manifest("v1", "ConfigMap", head("etcd-endpoints", ETCD, annotations=annotations))]


def pull_secret(inputs: Inputs) -> list[Object]:
    return [secret(head("pull-secret", CONFIG), {".dockerconfigjson": inputs.pull_secret}, DOCKER_CONFIG)]


def kubeadmin(inputs: Inputs) -> list[Object]:
    return [plain_secret("kube-system", "kubeadmin", {"kubeadmin": inputs.identity.kubeadmin_hash.encode()})]


def cluster_version(inputs: Inputs) -> list[Object]:
    """Return it without desiredUpdate: at its first start the version operator installs its own release."""
    channel = f"stable-{crds.release_line(inputs.payload.version)}"
    spec = {"channel": channel, "clusterID": inputs.identity.cluster_id}
    return [manifest(CONFIG_API, "ClusterVersion", head("version"), spec=spec)]


def _pool(name: str, replicas: int) -> Object:
    return {"name": name, "architecture": "amd64", "hyperthreading": "Enabled", "platform": {}, "replicas": replicas}
