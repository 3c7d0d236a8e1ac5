"""What is rendered from a cluster: certificates, kubeconfigs, passwords, and in which order."""

import base64
from dataclasses import replace
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml
from tests.support import hardway
from tests.support.hardway import PULL_SECRET, cluster, identity, inputs

from umbilical.bootstrap.spec import Shape
from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import (
    TOPICS,
    cluster_bundles,
    cluster_rows,
    names,
    render_certificates,
)
from umbilical.hardway.artifacts.graph import (
    NEED_RELEASE,
    RECIPES,
    GraphError,
    Recipe,
    Renderer,
    Rendering,
    asset_hash,
    in_order,
    render,
    tree_hash,
)
from umbilical.hardway.artifacts.inputs import TUNNEL_IMAGE, Inputs, NodeBase, ReleasePayload
from umbilical.hardway.artifacts.kubeconfigs import render_kubeadmin, render_kubeconfigs
from umbilical.hardway.artifacts.tunnel import tunnel_spec
from umbilical.hardway.config.cluster import ClusterProfile, NodeRole, Switch
from umbilical.hardway.explain.entry import TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.pki.row import Scope
from umbilical.manifests.tree import Asset, AssetTree
from umbilical.pki.certificate import read_certificates

INSIDE, OUTSIDE = "https://api-int.ocp4.example.com:6443", "https://api.ocp4.example.com:6443"
LOCAL = "https://localhost:6443"
BOOTSTRAPPER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
# Name -> user, cluster, server, common name.
WANTED = {
    "admin": ("admin", "ocp4", OUTSIDE, "system:admin"),
    "kube-controller-manager": ("system:kube-controller-manager", "ocp4", LOCAL, "system:kube-controller-manager"),
    "kube-scheduler": ("system:kube-scheduler", "ocp4", LOCAL, "system:kube-scheduler"),
    "kubelet-bootstrap": (BOOTSTRAPPER, "ocp4", INSIDE, BOOTSTRAPPER),
    "localhost": ("admin", "localhost", LOCAL, "system:admin"),
    "localhost-recovery": ("admin", "localhost-recovery", LOCAL, "system:admin"),
    "lb-int": ("admin", "lb-int", INSIDE, "system:admin"),
    "lb-ext": ("admin", "lb-ext", OUTSIDE, "system:admin"),
}


@pytest.mark.parametrize(
    ("services", "service", "dns"),
    [("172.30.0.0/16", "172.30.0.1", "172.30.0.10"), ("fd02::/112", "fd02::1", "fd02::a")],
)
def test_the_first_service_address_is_the_apis_the_tenth_the_resolvers(services: str, service: str, dns: str) -> None:
    of = cluster()
    of = replace(of, networks=replace(of.networks, services=ip_network(services)))
    assert (of.service_ip, of.dns_ip) == (ip_address(service), ip_address(dns))


def test_nodes_are_found_by_role_and_by_id() -> None:
    of = cluster(masters=3, workers=2)
    assert of.bootstrap.role is NodeRole.BOOTSTRAP
    assert [node.id for node in of.masters] == ["master-0", "master-1", "master-2"]
    assert [node.id for node in of.workers] == ["worker-0", "worker-1"]
    assert of.members == of.masters + of.workers
    assert of.node("worker-1") == of.workers[1]
    with pytest.raises(StopIteration):
        of.node("worker-2")


def test_kube_proxy_is_there_where_it_is_wanted_or_nothing_else_implements_services() -> None:
    for profile in ClusterProfile:
        found = {wish: cluster(profile, kube_proxy=wish).has_kube_proxy for wish in Switch}
        assert found == {Switch.ON: True, Switch.OFF: False, Switch.AUTO: profile is ClusterProfile.KUBERNETES}


def test_no_two_places_are_one_and_places_on_nodes_are_absolute() -> None:
    places = [value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)]
    assert len(places) == len(set(places))
    on_nodes = [
        value for name, value in vars(layout).items() if name.startswith(("NODE_", "POD_S", "POD_C", "MASTER_"))
    ]
    assert on_nodes
    assert all(place.startswith("/") for place in on_nodes)


def test_what_waits_is_not_where_the_kubelet_looks() -> None:
    assert not layout.NODE_LATE_MANIFESTS.startswith(f"{layout.NODE_MANIFESTS}/")


@pytest.mark.parametrize(
    ("wish", "has_image", "expected"),
    [(Switch.AUTO, True, True), (Switch.AUTO, False, False), (Switch.ON, False, True), (Switch.OFF, True, False)],
)
def test_there_is_a_tunnel_where_it_is_wanted_or_in_the_release(wish: Switch, has_image: bool, expected: bool) -> None:
    images = {TUNNEL_IMAGE: "localhost/tunnel:lab"} if has_image else {}
    given = inputs(ClusterProfile.KUBERNETES, 1, 0)
    given = replace(given, cluster=cluster(ClusterProfile.KUBERNETES, 1, 0, konnectivity=wish))
    assert replace(given, payload=ReleasePayload("v1", "", images)).has_tunnel is expected


def test_secrets_are_not_printed() -> None:
    shown = repr(inputs(ClusterProfile.KUBERNETES, 1, 0)) + repr(
        NodeBase(b"the config", b"the machine config", "rendered-x")
    )
    for secret in (PULL_SECRET.decode(), identity().kubeadmin_password, identity().kubeadmin_hash, "the config"):
        assert secret not in shown
    assert "PRIVATE KEY" not in shown


@cache
def rendering(profile: ClusterProfile) -> Rendering:
    return render(inputs(profile, 1, 1))


def writing(path: str, content: bytes = b"x") -> Renderer:
    def make(_: Inputs, made: AssetTree) -> AssetTree:
        tree = AssetTree()
        tree.add(path, content + b" ".join(sorted(asset.path.encode() for asset in made)))
        return tree

    return make


def recipe(name: str, *needs: str, stage: int = 5) -> Recipe:
    return Recipe(name, stage, writing(f"{name}/file"), needs)


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_file_belongs_to_one_recipe_and_one_stage(profile: ClusterProfile) -> None:
    made = rendering(profile)
    paths = [asset.path for asset in made.tree]
    assert sorted(path for one in made.files.values() for path in one) == sorted(paths)
    assert len(paths) == len(set(paths)) == sum(len(tree) for tree in made.by_recipe.values())
    assert set(made.hashes) == {recipe.id for recipe in RECIPES}
    assert {2, 5, 6, 7, 8} <= set(made.files)


@pytest.mark.parametrize("profile", ClusterProfile)
def test_what_needs_no_release_can_be_made_without_one(profile: ClusterProfile) -> None:
    bare = replace(inputs(profile, 1, 1), payload=ReleasePayload("", "", {}))
    made = render(bare, [recipe for recipe in RECIPES if recipe.id not in NEED_RELEASE])
    assert all(made.hashes[one] == rendering(profile).hashes[one] for one in made.hashes)


def test_a_recipe_sees_only_what_it_needs() -> None:
    made = render(inputs(ClusterProfile.KUBERNETES, 1, 1), [recipe("a"), recipe("b", "a"), recipe("c", "b")])
    assert made.tree["b/file"].content == b"xa/file"
    assert made.tree["c/file"].content == b"xb/file"


def test_needs_come_first() -> None:
    ordered = in_order([recipe("c", "b"), recipe("b", "a"), recipe("a"), recipe("d")])
    assert [one.id for one in ordered] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("recipes", "told"),
    [
        ([recipe("a", "b"), recipe("b", "a"), recipe("c")], "these recipes need each other: a, b"),
        ([recipe("a"), recipe("a")], "two recipes have the id a"),
        ([recipe("a", "z")], "a needs z, which does not exist"),
    ],
)
def test_what_is_no_graph_is_refused(recipes: list[Recipe], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        in_order(recipes)


def test_two_recipes_do_not_write_one_path() -> None:
    twice: list[Any] = [Recipe(name, 5, writing("same")) for name in ("a", "b")]
    with pytest.raises(RenderError, match="UMB111"):
        render(inputs(ClusterProfile.KUBERNETES, 1, 1), twice)


def test_a_hash_sees_content_mode_and_path_and_no_order() -> None:
    one, other = Asset("a", b"1", 0o644), Asset("b", b"1", 0o644)
    assert asset_hash(one) == asset_hash(other)
    assert len({tree_hash([asset]) for asset in (one, other, Asset("a", b"2", 0o644))}) == 3
    assert asset_hash(one) != asset_hash(Asset("a", b"1", 0o600))
    assert tree_hash([one, other]) == tree_hash([other, one])


def rendered(profile: ClusterProfile) -> AssetTree:
    return render_certificates(hardway.inputs(profile), AssetTree())


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_row_has_its_two_files_and_every_bundle_one(profile: ClusterProfile) -> None:
    cluster = hardway.cluster(profile)
    files = {f"tls/{file}" for row in cluster_rows(cluster) for file in (row.public_file, row.key_file)}
    bundles = {f"tls/bundles/{bundle.value}.crt" for bundle in cluster_bundles(cluster)}
    assert {asset.path for asset in rendered(profile)} == files | bundles


def test_names_follow_from_the_cluster() -> None:
    networks = replace(hardway.cluster().networks, services=ip_network("fd02::/112"))
    found = names(hardway.cluster(ClusterProfile.KUBERNETES, masters=1, networks=networks))
    assert found.scope is Scope.KUBERNETES
    assert str(found.service_ip) == "fd02::1"
    assert [one.id for one in found.members] == ["bootstrap", "master-0"]
    assert found.internal_api_name == "api-int.ocp4.example.com"


def test_upstream_has_no_metrics_bundle() -> None:
    assert Bundle.ETCD_METRICS_CA not in cluster_bundles(hardway.cluster(ClusterProfile.KUBERNETES))
    assert set(cluster_bundles(hardway.cluster(ClusterProfile.OPENSHIFT))) == set(Bundle)


def test_what_is_shown_by_hand_names_files_that_are_there() -> None:
    paths = {f"artifacts/{asset.path}" for asset in rendered(ClusterProfile.OPENSHIFT)}
    paths |= {f"artifacts/{asset.path}" for asset in rendered(ClusterProfile.KUBERNETES)}
    for topic in TOPICS:
        for word in topic.by_hand.replace("NODE", "master-0").split():
            assert not word.startswith("artifacts/") or word in paths
    assert {topic.kind for topic in TOPICS} == {TopicKind.CERTIFICATE, TopicKind.FILE}


def rendered_kubeconfigs(profile: ClusterProfile) -> dict[str, dict[str, Any]]:
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
    assert {name: facts(one) for name, one in rendered_kubeconfigs(ClusterProfile.OPENSHIFT).items()} == WANTED


def test_upstream_has_one_for_kube_proxy_and_another_newcomer() -> None:
    found = {name: facts(one) for name, one in rendered_kubeconfigs(ClusterProfile.KUBERNETES).items()}
    newcomer = ("system:bootstrapper", "ocp4", INSIDE, "system:bootstrapper")
    proxy = ("system:kube-proxy", "ocp4", INSIDE, "system:kube-proxy")
    assert found == WANTED | {"kubelet-bootstrap": newcomer, "kube-proxy": proxy}


def test_the_password_is_for_its_owner_alone() -> None:
    (asset,) = render_kubeadmin(inputs(ClusterProfile.OPENSHIFT), AssetTree())
    assert (asset.path, asset.mode) == ("auth/kubeadmin-password", 0o600)
    assert asset.content == hardway.identity().kubeadmin_password.encode()

    assert len(render_kubeadmin(inputs(ClusterProfile.KUBERNETES), AssetTree())) == 0


def test_only_openshift_puts_agents_into_the_pod_network() -> None:
    assert [tunnel_spec(inputs(one)).shape for one in ClusterProfile] == [Shape.OPENSHIFT, Shape.KUBERNETES]
    assert [tunnel_spec(inputs(one)).host_network for one in ClusterProfile] == [False, True]


def test_a_tunnel_that_is_wished_for_needs_an_image() -> None:
    with pytest.raises(RenderError) as caught:
        tunnel_spec(replace(inputs(ClusterProfile.OPENSHIFT), payload=ReleasePayload("4.18.0", "", {})))
    assert caught.value.code == "UMB716"
    assert "konnectivity: off" in caught.value.remedy
