"""Roles before operators."""

from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.manifests.rbac import kubernetes_rbac, openshift_rbac
from umbilical.assets.objects import Object
from umbilical.pki.certificate import read_certificates


def bound(objects: list[Object], role: str) -> list[Object]:
    return [
        subject
        for one in objects
        if one["kind"] == "ClusterRoleBinding" and one["roleRef"]["name"] == role
        for subject in one["subjects"]
    ]


def test_the_identity_of_new_kubelets_may_ask_for_certificates() -> None:
    (account,) = bound(openshift_rbac(hardway.inputs()), "system:node-bootstrapper")
    name = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert name == read_certificates(hardway.hardway_set()["kubelet-client"].certificate)[0].common_name
    (user,) = bound(kubernetes_rbac(hardway.inputs(Profile.KUBERNETES)), "system:node-bootstrapper")
    made = hardway.hardway_set(Profile.KUBERNETES)["kubelet-client"]
    assert user["name"] == read_certificates(made.certificate)[0].common_name


def test_kube_apiserver_may_call_kubelets() -> None:
    objects = openshift_rbac(hardway.inputs())
    role = next(one for one in objects if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "kube-apiserver")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get", "create"]}]
    subjects = [
        *bound(objects, "kube-apiserver"),
        *bound(kubernetes_rbac(hardway.inputs(Profile.KUBERNETES)), "system:kubelet-api-admin"),
    ]
    assert [one["name"] for one in subjects] == ["system:kube-apiserver"] * 2


def test_kube_proxy_is_allowed_to_watch_services_only_where_it_runs() -> None:
    assert not bound(openshift_rbac(hardway.inputs()), "system:node-proxier")
    assert bound(openshift_rbac(hardway.inputs(kube_proxy=Switch.ON)), "system:node-proxier")


def test_every_role_of_a_policy_controller_is_bound_to_its_account() -> None:
    objects = openshift_rbac(hardway.inputs())
    roles = [
        one["metadata"]["name"]
        for one in objects
        if one["kind"] == "ClusterRole" and one["metadata"]["name"].startswith("system:openshift:controller:")
    ]
    assert len(roles) == 3
    for role in roles:
        assert bound(objects, role)[0] == {
            "kind": "ServiceAccount",
            "name": role.rpartition(":")[2],
            "namespace": "openshift-infra",
        }
