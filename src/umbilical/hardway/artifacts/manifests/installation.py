"""What the installation itself leaves in the cluster: its configuration, access to registries, the first user."""

from typing import Final

from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.config_resources import NETWORK_TYPE
from umbilical.hardway.artifacts.manifests.feature_gate import CONFIG_API
from umbilical.hardway.artifacts.manifests.namespaces import CONFIG, ETCD
from umbilical.hardway.artifacts.manifests.objects import head, plain_secret
from umbilical.hardway.config.cluster import Cluster
from umbilical.manifests.objects import Object, config_map, manifest, secret
from umbilical.manifests.tree import yaml_bytes

ETCD_BOOTSTRAP: Final = "alpha.installer.openshift.io/etcd-bootstrap"
DOCKER_CONFIG: Final = "kubernetes.io/dockerconfigjson"


def install_config(cluster: Cluster) -> Object:
    """Write the installer's own input. The pull secret stays out: the ConfigMap is readable by many."""
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
    """Name the bootstrap member by annotation: data is for members by their ids, and the operator's to fill."""
    annotations = {ETCD_BOOTSTRAP: str(inputs.cluster.bootstrap.address)}
    return [manifest("v1", "ConfigMap", head("etcd-endpoints", ETCD, annotations=annotations))]


def pull_secret(inputs: Inputs) -> list[Object]:
    return [secret(head("pull-secret", CONFIG), {".dockerconfigjson": inputs.pull_secret}, DOCKER_CONFIG)]


def kubeadmin(inputs: Inputs) -> list[Object]:
    return [plain_secret("kube-system", "kubeadmin", {"kubeadmin": inputs.identity.kubeadmin_hash.encode()})]


def cluster_version(inputs: Inputs) -> list[Object]:
    """Without desiredUpdate: at its first start the version operator installs the release that it runs from."""
    channel = f"stable-{crds.release_line(inputs.payload.version)}"
    spec = {"channel": channel, "clusterID": inputs.identity.cluster_id}
    return [manifest(CONFIG_API, "ClusterVersion", head("version"), spec=spec)]


def _pool(name: str, replicas: int) -> Object:
    return {"name": name, "architecture": "amd64", "hyperthreading": "Enabled", "platform": {}, "replicas": replicas}
