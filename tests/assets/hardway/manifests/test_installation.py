"""What an installation leaves in the cluster."""

import base64
import json

import yaml
from tests.support import hardway

from umbilical.assets.hardway.manifests import installation


def test_the_installers_configuration_counts_replicas_and_holds_no_secret() -> None:
    (found,) = installation.cluster_config(hardway.inputs())
    config = yaml.safe_load(found["data"]["install-config"])
    assert config["controlPlane"]["replicas"] == 3
    assert config["compute"][0]["replicas"] == 2
    assert config["metadata"]["name"] == "ocp4"
    assert config["networking"]["machineNetwork"] == [{"cidr": "192.168.126.0/24"}]
    assert config["sshKey"] == hardway.SSH_KEY
    assert "pullSecret" not in config
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("kube-system", "cluster-config-v1")


def test_etcds_endpoint_is_an_annotation_and_no_data() -> None:
    (found,) = installation.etcd_endpoints(hardway.inputs())
    assert found["metadata"]["annotations"] == {"alpha.installer.openshift.io/etcd-bootstrap": "192.168.126.100"}
    assert "data" not in found


def test_the_pull_secret_is_a_docker_config() -> None:
    (found,) = installation.pull_secret(hardway.inputs())
    assert found["type"] == "kubernetes.io/dockerconfigjson"
    assert "quay.io" in json.loads(base64.b64decode(found["data"][".dockerconfigjson"]))["auths"]


def test_of_the_first_password_only_the_hash_is_told() -> None:
    (found,) = installation.kubeadmin(hardway.inputs())
    content = base64.b64decode(found["data"]["kubeadmin"]).decode()
    assert content == hardway.identity().kubeadmin_hash
    assert hardway.identity().kubeadmin_password not in str(found)


def test_the_version_has_a_channel_and_an_id_and_wants_no_update() -> None:
    (found,) = installation.cluster_version(hardway.inputs())
    assert found["spec"] == {"channel": "stable-4.18", "clusterID": hardway.identity().cluster_id}
