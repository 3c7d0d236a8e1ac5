"""The version operator's pod, which waits."""

from tests.support.hardway import RELEASE_IMAGE
from tests.support.hardway_pods import document, tree

from umbilical.assets.hardway.cluster import Profile

PATH = "late-static-pods/bootstrap/cvo-bootstrap.yaml"


def test_it_is_the_release_that_it_installs() -> None:
    pod = document(Profile.OPENSHIFT, PATH)
    [container] = pod["spec"]["containers"]
    assert container["image"] == RELEASE_IMAGE
    assert "command" not in container
    assert container["args"] == [
        "start",
        f"--release-image={RELEASE_IMAGE}",
        "--enable-auto-update=false",
        "--kubeconfig=/etc/kubernetes/kubeconfigs/localhost.kubeconfig",
        "--listen=",
        "--v=2",
    ]


def test_it_is_privileged_and_knows_its_profile_and_the_local_api() -> None:
    pod = document(Profile.OPENSHIFT, PATH)
    [container] = pod["spec"]["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "NODE_NAME": "bootstrap",
        "CLUSTER_PROFILE": "self-managed-high-availability",
    }
    assert pod["metadata"]["labels"]["k8s-app"] == "cluster-version-operator"
    assert pod["metadata"]["namespace"] == "openshift-cluster-version"


def test_the_kubernetes_profile_has_none() -> None:
    assert not [asset.path for asset in tree(Profile.KUBERNETES) if "cvo" in asset.path]
