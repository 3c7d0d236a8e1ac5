"""What is rendered for kustomize, built by the real one: it gives the same kube-apiserver as our own patching."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.hosted_certificates import hosted_set
from tests.support.hosted_specs import hosted_spec
from tests.support.hosted_workloads import as_bytes, container, deployment

import peers
from umbilical.assets.hosted.kube_apiserver_manifest import read_manifest
from umbilical.assets.hosted.render import Format, render
from umbilical.assets.hosted.server_patch import patched
from umbilical.cli.tree_files import write_tree
from umbilical.host.processes import run

pytestmark = pytest.mark.real("kubectl")
OVERLAY: Final = """\
resources: [kube-apiserver.yaml, olm-operator.yaml, rendered/management]
components: [rendered/management/patches]
"""
OLM: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "olm-operator", "namespace": "clusters-guest"},
    "spec": {"template": {"spec": {"containers": [{"name": "olm-operator", "image": "registry.example/olm:1"}]}}},
}


def built(folder: Path) -> list[dict[str, Any]]:
    program = peers.binary("kubectl")
    assert program is not None
    return list(yaml.safe_load_all(run([str(program), "kustomize", str(folder)], 60.0)))


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """Somebody's own control plane, with the rendered base and component beside it."""
    tree = render(hosted_spec(), hosted_set(), form=Format.KUSTOMIZE)
    write_tree(tree, tmp_path / "rendered", overwrite=False)
    (tmp_path / "kube-apiserver.yaml").write_bytes(as_bytes(deployment()))
    (tmp_path / "olm-operator.yaml").write_bytes(as_bytes(OLM))
    (tmp_path / "kustomization.yaml").write_text(OVERLAY)
    return tmp_path


def deployment_of(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in objects if (one["kind"], one["metadata"]["name"]) == ("Deployment", name))


def _in_one_order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def sorted_lists(value: Any) -> Any:
    """Take lists of named things in one order: kustomize puts new ones first."""
    if isinstance(value, dict):
        return {key: sorted_lists(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((sorted_lists(one) for one in value), key=_in_one_order) if isinstance(value[0], dict) else value
    return value


def test_the_component_patches_a_kube_apiserver_as_we_do(overlay: Path) -> None:
    found = deployment_of(built(overlay), "kube-apiserver")
    ours = patched(read_manifest(as_bytes(deployment()), hosted_spec()), hosted_spec())
    assert sorted_lists(found) == sorted_lists(ours)


def test_the_component_puts_proxies_beside_components(overlay: Path) -> None:
    found = deployment_of(built(overlay), "olm-operator")
    assert container(found, "konnectivity-proxy-socks5")
    assert container(found, "olm-operator")["image"] == "registry.example/olm:1"


@pytest.mark.parametrize("cluster", ["management", "hosted"])
def test_a_base_builds_alone(overlay: Path, cluster: str) -> None:
    assert len(built(overlay / "rendered" / cluster)) > 5


def test_flags_are_not_given_to_the_wrong_container(overlay: Path) -> None:
    document = deployment()
    document["spec"]["template"]["spec"]["containers"].reverse()
    (overlay / "kube-apiserver.yaml").write_bytes(as_bytes(document))
    with pytest.raises(Exception, match="test"):
        built(overlay)
