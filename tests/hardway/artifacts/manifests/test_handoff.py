"""What the installation and the operators find: certificates, keys, secrets and endpoints."""

import base64
import json
from typing import Any

import yaml
from tests.support import hardway

from umbilical.hardway.artifacts.manifests import config_resources, handoff
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.objects import Object

MADE = hardway.inputs().certificates


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    return {(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]): one for one in objects}


def decoded(value: Object) -> dict[str, bytes]:
    found: dict[str, Any] = value["data"]
    return {key: base64.b64decode(text) for key, text in found.items()}


def test_six_signers_and_the_key_for_bound_tokens_go_to_kube_apiservers_operator() -> None:
    found = by_name(handoff.kube_apiserver_operator(hardway.inputs()))
    namespace = "openshift-kube-apiserver-operator"
    assert sorted(name for _, _, name in found) == [
        "aggregator-client-signer",
        "kube-apiserver-to-kubelet-signer",
        "kube-control-plane-signer",
        "loadbalancer-serving-signer",
        "localhost-serving-signer",
        "next-bound-service-account-signing-key",
        "service-network-serving-signer",
    ]
    signer = decoded(found["Secret", namespace, "loadbalancer-serving-signer"])
    assert signer == {
        "tls.crt": MADE["kube-apiserver-lb-signer"].certificate,
        "tls.key": MADE["kube-apiserver-lb-signer"].key,
    }
    key = decoded(found["Secret", namespace, "next-bound-service-account-signing-key"])
    assert key["service-account.pub"] == MADE["bound-service-account-signing-key"].certificate


def test_clients_that_exist_stay_known_to_masters() -> None:
    found = by_name(handoff.client_authorities(hardway.inputs()))
    admin = found["ConfigMap", "openshift-config", "admin-kubeconfig-client-ca"]
    assert admin["data"]["ca-bundle.crt"].encode() == MADE["admin-kubeconfig-signer"].certificate
    tokens = found["ConfigMap", "openshift-config-managed", "sa-token-signing-certs"]["data"]
    assert tokens == {"service-account-001.pub": MADE["service-account"].certificate.decode()}
    kubelets = found["ConfigMap", "openshift-config-managed", "csr-controller-ca"]
    assert kubelets["data"]["ca-bundle.crt"].encode() == MADE["kubelet-signer"].certificate
    assert ("ConfigMap", "openshift-config-managed", "kubelet-bootstrap-kubeconfig") in found
    assert found["ConfigMap", "openshift-config", "initial-kube-apiserver-server-ca"]["data"][
        "ca-bundle.crt"
    ].encode() == MADE.bundle(Bundle.CLIENT_CA)


def test_controller_managers_operator_gets_the_kubelets_signer_and_the_key_of_tokens() -> None:
    found = by_name(handoff.controller_manager_operator(hardway.inputs()))
    signer = found["Secret", "openshift-kube-controller-manager-operator", "csr-signer-signer"]
    assert decoded(signer)["tls.key"] == MADE["kubelet-signer"].key
    key = found["Secret", "openshift-config", "initial-service-account-private-key"]
    assert decoded(key) == {"service-account.key": MADE["service-account"].key}


def test_etcds_operator_gets_the_pki_of_the_running_member() -> None:
    found = by_name(handoff.etcd_operator(hardway.inputs()))
    assert {namespace for _, namespace, _ in found} == {"openshift-etcd"}
    name = "bootstrap.ocp4.example.com"
    together = decoded(found["Secret", "openshift-etcd", "etcd-all-certs"])
    for kind in ("etcd-peer", "etcd-serving", "etcd-serving-metrics"):
        pair = MADE[f"{kind}-bootstrap"]
        assert decoded(found["Secret", "openshift-etcd", f"{kind}-{name}"])["tls.crt"] == pair.certificate
        assert (together[f"{kind}-{name}.crt"], together[f"{kind}-{name}.key"]) == (pair.certificate, pair.key)
    bundles = found["ConfigMap", "openshift-etcd", "etcd-all-bundles"]["data"]
    assert bundles["server-ca-bundle.crt"].encode() == MADE["etcd-signer"].certificate
    assert bundles["metrics-ca-bundle.crt"].encode() == MADE["etcd-metric-signer"].certificate
    service = found["Service", "openshift-etcd", "etcd"]
    assert [port["port"] for port in service["spec"]["ports"]] == [2379, 9979]


def test_the_machine_config_servers_authority_is_there_three_times() -> None:
    found = by_name(handoff.machine_config_operator(hardway.inputs()))
    namespace = "openshift-machine-config-operator"
    root = MADE["root-ca"].certificate
    assert decoded(found["Secret", namespace, "machine-config-server-ca"])["tls.crt"] == root
    assert found["ConfigMap", namespace, "machine-config-server-ca"]["data"]["ca-bundle.crt"].encode() == root
    assert found["ConfigMap", "kube-system", "root-ca"]["data"]["ca.crt"].encode() == root
    assert (
        decoded(found["Secret", namespace, "machine-config-server-tls"])["tls.key"] == MADE["machine-config-server"].key
    )


def test_the_installers_configuration_counts_replicas_and_holds_no_secret() -> None:
    (found,) = config_resources.cluster_config(hardway.inputs())
    config = yaml.safe_load(found["data"]["install-config"])
    assert config["controlPlane"]["replicas"] == 3
    assert config["compute"][0]["replicas"] == 2
    assert config["metadata"]["name"] == "ocp4"
    assert config["networking"]["machineNetwork"] == [{"cidr": "192.168.126.0/24"}]
    assert config["sshKey"] == hardway.SSH_KEY
    assert "pullSecret" not in config
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("kube-system", "cluster-config-v1")


def test_the_pull_secret_is_a_docker_config() -> None:
    (found,) = config_resources.pull_secret(hardway.inputs())
    assert found["type"] == "kubernetes.io/dockerconfigjson"
    assert "quay.io" in json.loads(base64.b64decode(found["data"][".dockerconfigjson"]))["auths"]


def test_of_the_first_password_only_the_hash_is_told() -> None:
    (found,) = config_resources.kubeadmin(hardway.inputs())
    content = base64.b64decode(found["data"]["kubeadmin"]).decode()
    assert (content, found["type"]) == (hardway.identity().kubeadmin_hash, "Opaque")
    assert hardway.identity().kubeadmin_password not in str(found)


def test_the_version_has_a_channel_and_an_id_and_wants_no_update() -> None:
    (found,) = config_resources.cluster_version(hardway.inputs())
    assert found["spec"] == {"channel": "stable-4.18", "clusterID": hardway.identity().cluster_id}
