"""The password of OpenShift's first administrator, as its installer leaves it behind."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.manifests.tree import AssetTree

STAGE: Final = 6
FILE: Final = "kubeadmin-password"


def render_kubeadmin(inputs: Inputs, made: AssetTree) -> AssetTree:
    tree = AssetTree()
    if inputs.cluster.is_openshift:
        tree.add(f"{layout.AUTH}/{FILE}", inputs.identity.kubeadmin_password.encode())
    return tree


TOPICS: Final[tuple[Topic, ...]] = (
    Topic(
        TopicKind.FILE,
        FILE,
        STAGE,
        "The password of the user kubeadmin, drawn once: four groups of five characters, none of which look alike.",
        "Whoever logs in to the console before there is an identity provider; the cluster has only its bcrypt hash.",
        "oc login -u kubeadmin: Login failed (401 Unauthorized); the admin kubeconfig still works.",
        f'oc login -u kubeadmin -p "$(cat artifacts/{layout.AUTH}/{FILE})"',
        "The same file, auth/kubeadmin-password, and the same form.",
    ),
)
