"""Applied objects: the order of files, namespaces, roles, the cluster's configuration, DNS and the tunnel."""

import base64
from datetime import UTC, datetime
from functools import cache

import pytest
import yaml
from tests.support import hardway

from umbilical.hardway.artifacts.manifests import config_resources as config
from umbilical.hardway.artifacts.manifests.catalogue import FILES, TOPICS, render_manifests
from umbilical.hardway.artifacts.manifests.coredns import coredns
from umbilical.hardway.artifacts.manifests.objects import (
    ISSUER,
    NOT_AFTER,
    NOT_BEFORE,
    OTHERS,
    STATIC_PODS,
    add_objects,
    certificate_secret,
    namespaces,
    timestamp,
)
from umbilical.hardway.artifacts.manifests.rbac import openshift_rbac
from umbilical.hardway.artifacts.tunnel import tunnel_objects
from umbilical.hardway.config.cluster import ClusterProfile, Switch
from umbilical.manifests.objects import Object
from umbilical.manifests.tree import AssetTree
from umbilical.pki.certificate import read_certificates

SIGNER = hardway.hardway_set()["etcd-signer"]


@pytest.mark.parametrize("profile", ClusterProfile)
def test_files_stand_in_the_order_in_which_they_are_applied(profile: ClusterProfile) -> None:
    names = [one.name for one in FILES[profile]]
    assert names == sorted(set(names))


def test_every_file_is_explained_once_in_whole_sentences() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(names) == len(set(names))
    assert {one.name for files in FILES.values() for one in files} <= set(names)
    for topic in TOPICS:
        for words in (topic.what, topic.readers, topic.without, topic.installer):
            assert words.endswith("."), (topic.name, words)
        assert topic.by_hand.startswith("kubectl "), topic.name


def test_a_file_with_a_secret_in_it_is_for_its_owner_alone() -> None:
    tree = AssetTree()
    add_objects(tree, "a.yaml", [{"kind": "ConfigMap"}, {"kind": "Secret"}])
    add_objects(tree, "b.yaml", [{"kind": "ConfigMap"}])
    assert [(one.path, one.mode) for one in tree] == [("manifests/a.yaml", 0o600), ("manifests/b.yaml", 0o644)]


@cache
def rendered(profile: ClusterProfile) -> AssetTree:
    return render_manifests(hardway.inputs(profile), AssetTree())


def objects(tree: AssetTree) -> list[Object]:
    paths = sorted(one.path for one in tree)
    return [one for path in paths for one in yaml.safe_load_all(tree[path].content)]


def kinds(tree: AssetTree) -> list[str]:
    return [one["kind"] for one in objects(tree)]


def test_the_kubernetes_profile_knows_nothing_of_openshift() -> None:
    found = objects(rendered(ClusterProfile.KUBERNETES))
    assert not [one for one in found if "openshift" in one["apiVersion"] or "openshift" in one["metadata"]["name"]]
    assert {"ClusterRoleBinding", "Deployment", "Service", "DaemonSet", "Namespace"} <= {one["kind"] for one in found}


@pytest.mark.parametrize("profile", ClusterProfile)
def test_the_tunnels_secret_is_made_on_the_node_and_never_here(profile: ClusterProfile) -> None:
    names = {one["metadata"]["name"] for one in objects(rendered(profile)) if one["kind"] == "Secret"}
    assert not [name for name in names if "konnectivity" in name]


@pytest.mark.parametrize("profile", ClusterProfile)
def test_without_a_tunnel_there_is_nothing_of_it(profile: ClusterProfile) -> None:
    inputs = hardway.inputs(profile, konnectivity=Switch.OFF)
    tree = render_manifests(inputs, AssetTree())
    assert "DaemonSet" not in kinds(tree)
    assert "manifests/08-tunnel.yaml" not in tree


def test_namespaces_keep_no_pods_off_masters_and_those_of_static_pods_are_privileged_and_judged_by_nobody() -> None:
    found = {one["metadata"]["name"]: one["metadata"] for one in namespaces(hardway.inputs())}
    for name in STATIC_PODS:
        assert found[name]["labels"]["openshift.io/run-level"] == "0"
        assert found[name]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert not [name for name in OTHERS if "labels" in found[name]]
    annotations = {"openshift.io/node-selector": "", "workload.openshift.io/allowed": "management"}
    assert [one["annotations"] for one in found.values()] == [annotations] * len(found)


def test_a_signers_secret_tells_its_dates_as_the_certificate_has_them() -> None:
    found = certificate_secret("ns", "name", SIGNER)
    certificate = read_certificates(SIGNER.certificate)[0]
    annotations = found["metadata"]["annotations"]
    assert datetime.strptime(annotations[NOT_BEFORE], "%Y-%m-%dT%H:%M:%S%z") == certificate.not_before
    assert datetime.strptime(annotations[NOT_AFTER], "%Y-%m-%dT%H:%M:%S%z") == certificate.not_after
    assert annotations[ISSUER] == certificate.issuer_name
    assert found["type"] == "kubernetes.io/tls"
    assert found["metadata"]["labels"] == {"auth.openshift.io/managed-certificate-type": "signer"}
    assert base64.b64decode(found["data"]["tls.key"]) == SIGNER.key


def test_moments_are_written_as_go_writes_them() -> None:
    assert timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05Z"


def bound(objects: list[Object], role: str) -> list[Object]:
    return [
        subject
        for one in objects
        if one["kind"] == "ClusterRoleBinding" and one["roleRef"]["name"] == role
        for subject in one["subjects"]
    ]


def test_kube_proxy_is_allowed_to_watch_services_only_where_it_runs() -> None:
    assert not bound(openshift_rbac(hardway.inputs()), "system:node-proxier")
    assert bound(openshift_rbac(hardway.inputs(kube_proxy=Switch.ON)), "system:node-proxier")


@pytest.mark.parametrize(
    ("masters", "workers", "control_plane", "others"),
    [
        (1, 0, "SingleReplica", "SingleReplica"),
        (1, 1, "SingleReplica", "SingleReplica"),
        (1, 2, "SingleReplica", "HighlyAvailable"),
        (2, 0, "DualReplica", "HighlyAvailable"),
        (3, 0, "HighlyAvailable", "HighlyAvailable"),
        (3, 1, "HighlyAvailable", "SingleReplica"),
        (3, 2, "HighlyAvailable", "HighlyAvailable"),
        (5, 9, "HighlyAvailable", "HighlyAvailable"),
    ],
)
def test_topologies_follow_the_number_of_machines(masters: int, workers: int, control_plane: str, others: str) -> None:
    (found,) = config.infrastructure(hardway.inputs(masters=masters, workers=workers))
    assert found["status"]["controlPlaneTopology"] == control_plane
    assert found["status"]["infrastructureTopology"] == others


def test_infrastructure_tells_its_name_its_platform_and_both_urls() -> None:
    (found,) = config.infrastructure(hardway.inputs())
    status = found["status"]
    assert status["infrastructureName"] == "ocp4-x7k2m"
    assert status["platformStatus"] == {"type": "None"}
    assert status["apiServerURL"] == "https://api.ocp4.example.com:6443"
    assert status["apiServerInternalURI"] == "https://api-int.ocp4.example.com:6443"


@pytest.mark.parametrize(("workers", "schedulable"), [(0, True), (2, False)])
def test_masters_take_workloads_only_where_nobody_else_does(workers: int, schedulable: bool) -> None:
    assert config.scheduler(hardway.inputs(workers=workers))[0]["spec"]["mastersSchedulable"] is schedulable


def test_there_is_no_proxy() -> None:
    assert config.proxy(hardway.inputs())[0]["spec"] == {}


def made(**sizes: int) -> dict[str, Object]:
    return {one["kind"]: one for one in coredns(hardway.inputs(ClusterProfile.KUBERNETES, **sizes))}


def test_it_answers_at_the_address_that_kubelets_give_to_pods() -> None:
    service = made()["Service"]
    assert service["spec"]["clusterIP"] == "172.30.0.10"
    assert {(port["port"], port["protocol"]) for port in service["spec"]["ports"]} >= {(53, "UDP"), (53, "TCP")}
    assert service["spec"]["selector"] == made()["Deployment"]["spec"]["template"]["metadata"]["labels"]


def test_it_runs_on_masters_before_workers_exist() -> None:
    pod = made()["Deployment"]["spec"]["template"]["spec"]
    tolerated = {one["key"] for one in pod["tolerations"]}
    assert {"node-role.kubernetes.io/control-plane", "node.kubernetes.io/not-ready"} <= tolerated
    assert pod["containers"][0]["image"] == "localhost/coredns:lab"
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_there_are_no_more_of_it_than_nodes() -> None:
    assert made(masters=1, workers=0)["Deployment"]["spec"]["replicas"] == 1
    assert made(masters=1, workers=1)["Deployment"]["spec"]["replicas"] == 2
    assert made()["Deployment"]["spec"]["replicas"] == 2


def test_other_names_are_asked_of_the_machines_resolver() -> None:
    corefile = made()["ConfigMap"]["data"]["Corefile"]
    assert "forward . 192.168.126.1 {" in corefile
    assert corefile.count("{") == corefile.count("}")


def test_its_account_may_watch_what_it_serves() -> None:
    rules = made()["ClusterRole"]["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} >= {
        "services",
        "endpointslices",
        "namespaces",
    }
    subject = made()["ClusterRoleBinding"]["subjects"][0]
    account = made()["ServiceAccount"]["metadata"]
    assert (subject["namespace"], subject["name"]) == (account["namespace"], account["name"])


@pytest.mark.parametrize("profile", ClusterProfile)
def test_agents_run_on_every_node_whatever_its_state_and_dial_the_bootstrap_node(profile: ClusterProfile) -> None:
    namespace, agents = tunnel_objects(hardway.inputs(profile))
    pod = agents["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "--proxy-server-host=192.168.126.100" in pod["containers"][0]["args"]
    assert pod["containers"][0]["image"] == hardway.payload(profile).images["apiserver-network-proxy"]
    assert agents["metadata"]["namespace"] == namespace["metadata"]["name"]


def test_only_in_openshift_do_constraints_give_agents_their_user() -> None:
    users = {}
    for profile in ClusterProfile:
        _, agents = tunnel_objects(hardway.inputs(profile))
        users[profile] = agents["spec"]["template"]["spec"]["securityContext"].get("runAsUser")
    assert users == {ClusterProfile.OPENSHIFT: None, ClusterProfile.KUBERNETES: 65532}
