"""The input directory of the machine-config render commands: exact names, and the same objects that are applied."""

import json

import yaml
from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.machine_config.inputs_directory import TOPICS, render_machine_config
from umbilical.assets.hardway.manifests.render import render_manifests
from umbilical.assets.tree import AssetTree
from umbilical.pki.hardway_set import Bundle

NAMES = (
    "image-references",
    "manifests/99_feature-gate.yaml",
    "manifests/cluster-config.yaml",
    "manifests/cluster-dns-02-config.yml",
    "manifests/cluster-infrastructure-02-config.yml",
    "manifests/cluster-network-02-config.yml",
    "manifests/cluster-proxy-01-config.yaml",
    "manifests/openshift-config-secret-pull-secret.yaml",
    "render.sh",
    "tls/kube-apiserver-complete-client-ca-bundle.crt",
    "tls/root-ca.crt",
)
SAME = {
    "99_feature-gate.yaml": "04-feature-gate.yaml",
    "cluster-config.yaml": "06-cluster-config.yaml",
    "cluster-infrastructure-02-config.yml": "05-infrastructure.yaml",
    "openshift-config-secret-pull-secret.yaml": "06-pull-secret.yaml",
}


def rendered() -> AssetTree:
    return render_machine_config(hardway.inputs(), AssetTree())


def test_files_have_the_names_that_are_compiled_into_the_commands() -> None:
    assert sorted(one.path for one in rendered()) == [f"machine-config/{name}" for name in NAMES]


def test_what_the_commands_read_is_what_is_applied() -> None:
    applied = render_manifests(hardway.inputs(), AssetTree())
    tree = rendered()
    for name, other in SAME.items():
        assert tree[f"machine-config/manifests/{name}"].content == applied[f"manifests/{other}"].content


def test_infrastructure_has_its_status_and_the_client_authorities_are_all_there() -> None:
    tree = rendered()
    value = yaml.safe_load(tree["machine-config/manifests/cluster-infrastructure-02-config.yml"].content)
    assert value["status"]["controlPlaneTopology"] == "HighlyAvailable"
    made = hardway.inputs().certificates
    bundle = tree["machine-config/tls/kube-apiserver-complete-client-ca-bundle.crt"].content
    assert bundle == made.bundle(Bundle.CLIENT_CA)


def test_the_pull_secret_is_for_its_owner_alone_and_the_script_can_be_run() -> None:
    tree = rendered()
    assert tree["machine-config/manifests/openshift-config-secret-pull-secret.yaml"].mode == 0o600
    assert tree["machine-config/render.sh"].mode == 0o555


def test_image_references_are_the_releases_own() -> None:
    tags = json.loads(rendered()["machine-config/image-references"].content)["spec"]["tags"]
    assert {tag["name"] for tag in tags} == set(hardway.TAGS)


def test_the_kubernetes_profile_has_no_machine_config_operator() -> None:
    assert not list(render_machine_config(hardway.inputs(Profile.KUBERNETES), AssetTree()))


def test_every_file_is_explained() -> None:
    named = {topic.name for topic in TOPICS}
    assert {one for one in NAMES if "/" in one} == {name.removeprefix("machine-config/") for name in named}
