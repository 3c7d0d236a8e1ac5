"""Manifests of both profiles as files: order, names, modes."""

from functools import cache
from itertools import pairwise

import pytest
import yaml
from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.manifests.render import render_manifests
from umbilical.assets.objects import Object
from umbilical.assets.tree import AssetTree


@cache
def rendered(profile: Profile) -> AssetTree:
    return render_manifests(hardway.inputs(profile), AssetTree())


def objects(tree: AssetTree) -> list[Object]:
    paths = sorted(one.path for one in tree)
    return [one for path in paths for one in yaml.safe_load_all(tree[path].content)]


def kinds(tree: AssetTree) -> list[str]:
    return [one["kind"] for one in objects(tree)]


@pytest.mark.parametrize("profile", Profile)
def test_the_same_inputs_give_the_same_bytes(profile: Profile) -> None:
    again = render_manifests(hardway.inputs(profile), AssetTree())
    assert [(one.path, one.content, one.mode) for one in again] == [
        (one.path, one.content, one.mode) for one in rendered(profile)
    ]


def test_openshifts_objects_come_in_the_order_in_which_they_can_be_created() -> None:
    found = kinds(rendered(Profile.OPENSHIFT))
    order = ["Namespace", "CustomResourceDefinition", "ClusterRoleBinding", "FeatureGate", "Infrastructure", "Secret"]
    places = [found.index(kind) for kind in order]
    assert places == sorted(places)
    last = [len(found) - 1 - found[::-1].index(kind) for kind in ("Secret", "ClusterVersion")]
    assert last == sorted(last)


def test_openshift_has_22_definitions_of_the_bootstrap_two_of_the_version_operator_and_the_networks() -> None:
    assert kinds(rendered(Profile.OPENSHIFT)).count("CustomResourceDefinition") == 22 + 2 + 1


def test_both_network_objects_come_after_their_definitions() -> None:
    found = objects(rendered(Profile.OPENSHIFT))
    names = [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in found]
    for group in ("config", "operator"):
        crd = names.index(("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"networks.{group}.openshift.io"))
        assert crd < names.index((f"{group}.openshift.io/v1", "Network", "cluster"))


def test_the_kubernetes_profile_knows_nothing_of_openshift() -> None:
    found = objects(rendered(Profile.KUBERNETES))
    assert not [one for one in found if "openshift" in one["apiVersion"] or "openshift" in one["metadata"]["name"]]
    assert {"ClusterRoleBinding", "Deployment", "Service", "DaemonSet", "Namespace"} <= {one["kind"] for one in found}


@pytest.mark.parametrize("profile", Profile)
def test_the_tunnels_secret_is_made_on_the_node_and_never_here(profile: Profile) -> None:
    names = {one["metadata"]["name"] for one in objects(rendered(profile)) if one["kind"] == "Secret"}
    assert not [name for name in names if "konnectivity" in name]


@pytest.mark.parametrize("profile", Profile)
def test_without_a_tunnel_there_is_nothing_of_it(profile: Profile) -> None:
    inputs = hardway.inputs(profile, konnectivity=Switch.OFF)
    tree = render_manifests(inputs, AssetTree())
    assert "DaemonSet" not in kinds(tree)
    assert "manifests/08-tunnel.yaml" not in tree


def test_files_with_secrets_are_for_their_owner_alone() -> None:
    tree = rendered(Profile.OPENSHIFT)
    for asset in tree:
        has_secret = any(one["kind"] == "Secret" for one in yaml.safe_load_all(asset.content))
        assert asset.mode == (0o600 if has_secret else 0o644), asset.path


def test_names_of_files_sort_as_they_are_made() -> None:
    for profile in Profile:
        paths = [one.path for one in rendered(profile) if "/02-crd-" not in one.path]
        assert all(one < other for one, other in pairwise(paths))
