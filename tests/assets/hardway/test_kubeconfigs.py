"""The eight kubeconfigs, and one more upstream."""

import base64
from typing import Any

import pytest
import yaml
from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.kubeconfigs import KUBECONFIGS, TOPICS, render_kubeconfigs
from umbilical.assets.tree import AssetTree
from umbilical.pki.certificate import read_certificates
from umbilical.pki.hardway_set import Bundle

INSIDE, OUTSIDE = "https://api-int.ocp4.example.com:6443", "https://api.ocp4.example.com:6443"
LOCAL = "https://localhost:6443"
BOOTSTRAPPER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
# Name -> user, cluster, server, common name.
WANTED = {
    "admin": ("admin", "ocp4", OUTSIDE, "system:admin"),
    "kube-controller-manager": (
        "system:kube-controller-manager",
        "ocp4",
        LOCAL,
        "system:kube-controller-manager",
    ),
    "kube-scheduler": ("system:kube-scheduler", "ocp4", LOCAL, "system:kube-scheduler"),
    "kubelet-bootstrap": (BOOTSTRAPPER, "ocp4", INSIDE, BOOTSTRAPPER),
    "localhost": ("admin", "localhost", LOCAL, "system:admin"),
    "localhost-recovery": ("admin", "localhost-recovery", LOCAL, "system:admin"),
    "lb-int": ("admin", "lb-int", INSIDE, "system:admin"),
    "lb-ext": ("admin", "lb-ext", OUTSIDE, "system:admin"),
}


def rendered(profile: Profile) -> dict[str, dict[str, Any]]:
    tree = render_kubeconfigs(hardway.inputs(profile), AssetTree())
    assert {asset.mode for asset in tree} == {0o600}
    return {
        asset.path.removeprefix("auth/").removesuffix(".kubeconfig"): yaml.safe_load(asset.content) for asset in tree
    }


def facts(document: dict[str, Any]) -> tuple[str, str, str, str]:
    [user], [cluster], [context] = document["users"], document["clusters"], document["contexts"]
    assert context["name"] == document["current-context"] == context["context"]["user"] == user["name"]
    assert context["context"]["cluster"] == cluster["name"]
    pem = base64.b64decode(user["user"]["client-certificate-data"])
    return user["name"], cluster["name"], cluster["cluster"]["server"], read_certificates(pem)[0].common_name


def test_openshift_has_the_eight() -> None:
    assert {name: facts(one) for name, one in rendered(Profile.OPENSHIFT).items()} == WANTED


def test_upstream_has_one_for_kube_proxy_and_another_newcomer() -> None:
    found = {name: facts(one) for name, one in rendered(Profile.KUBERNETES).items()}
    newcomer = ("system:bootstrapper", "ocp4", INSIDE, "system:bootstrapper")
    proxy = ("system:kube-proxy", "ocp4", INSIDE, "system:kube-proxy")
    assert found == WANTED | {"kubelet-bootstrap": newcomer, "kube-proxy": proxy}


@pytest.mark.parametrize("profile", Profile)
def test_all_trust_every_signer_of_the_apis_servers(profile: Profile) -> None:
    bundle = hardway.hardway_set(profile).bundle(Bundle.SERVER_CA)
    for document in rendered(profile).values():
        assert base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]) == bundle


def test_each_is_explained() -> None:
    assert [topic.name for topic in TOPICS] == [f"{one.name}.kubeconfig" for one in KUBECONFIGS]
    for topic in TOPICS:
        assert all((topic.what, topic.readers, topic.without, topic.by_hand, topic.installer)), topic.name
