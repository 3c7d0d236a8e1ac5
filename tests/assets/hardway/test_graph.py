"""Recipes in their order, and what is made of them."""

import dataclasses
from functools import cache
from typing import Any

import pytest
from tests.support import hardway, release_directory

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.certificates import names
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.graph import (
    NEED_RELEASE,
    RECIPES,
    GraphError,
    Rendering,
    asset_hash,
    in_order,
    joined,
    render,
    tree_hash,
)
from umbilical.assets.hardway.inputs import Inputs, Payload
from umbilical.assets.hardway.recipe import Recipe, Renderer
from umbilical.assets.tree import Asset, AssetTree
from umbilical.pki.hardway_renewal import renew


@cache
def inputs(profile: Profile = Profile.KUBERNETES) -> Inputs:
    cluster = hardway.cluster(profile, 1, 1)
    payload = release_directory.release_payload() if cluster.is_openshift else hardway.payload(profile)
    made = renew(names(cluster), {}, cluster.terms, hardway.NOW)
    return Inputs(cluster, made.set, payload, hardway.identity(), hardway.PULL_SECRET)


@cache
def rendering(profile: Profile) -> Rendering:
    return render(inputs(profile))


def writing(path: str, content: bytes = b"x") -> Renderer:
    def make(_: Inputs, made: AssetTree) -> AssetTree:
        tree = AssetTree()
        tree.add(path, content + b" ".join(sorted(asset.path.encode() for asset in made)))
        return tree

    return make


def recipe(name: str, *needs: str, stage: int = 5) -> Recipe:
    return Recipe(name, stage, writing(f"{name}/file"), needs)


@pytest.mark.parametrize("profile", Profile)
def test_the_same_inputs_give_the_same_bytes(profile: Profile) -> None:
    again = render(inputs(profile))
    assert again.hashes == rendering(profile).hashes
    assert [vars(one) for one in again.tree] == [vars(one) for one in rendering(profile).tree]


@pytest.mark.parametrize("profile", Profile)
def test_every_file_belongs_to_one_recipe_and_one_stage(profile: Profile) -> None:
    made = rendering(profile)
    paths = [asset.path for asset in made.tree]
    assert sorted(path for one in made.files.values() for path in one) == sorted(paths)
    assert len(paths) == len(set(paths)) == sum(len(tree) for tree in made.by_recipe.values())
    assert set(made.hashes) == {recipe.id for recipe in RECIPES}
    assert {2, 5, 6, 7, 8} <= set(made.files)


@pytest.mark.parametrize("profile", Profile)
def test_what_needs_no_release_can_be_made_without_one(profile: Profile) -> None:
    bare = dataclasses.replace(inputs(profile), payload=Payload("", "", {}))
    made = render(bare, [recipe for recipe in RECIPES if recipe.id not in NEED_RELEASE])
    assert all(made.hashes[one] == rendering(profile).hashes[one] for one in made.hashes)


def test_a_recipe_sees_only_what_it_needs() -> None:
    made = render(inputs(), [recipe("a"), recipe("b", "a"), recipe("c", "b")])
    assert made.tree["b/file"].content == b"xa/file"
    assert made.tree["c/file"].content == b"xb/file"


def test_needs_come_first() -> None:
    ordered = in_order([recipe("c", "b"), recipe("b", "a"), recipe("a"), recipe("d")])
    assert [one.id for one in ordered] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("recipes", "told"),
    [
        ([recipe("a", "b"), recipe("b", "a"), recipe("c")], "these recipes need each other: a, b"),
        ([recipe("a"), recipe("a")], "two recipes are called a"),
        ([recipe("a", "z")], "a needs z, and there is no such recipe"),
    ],
)
def test_what_is_no_graph_is_refused(recipes: list[Recipe], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        in_order(recipes)


def test_two_recipes_do_not_write_one_path() -> None:
    twice: list[Any] = [Recipe(name, 5, writing("same")) for name in ("a", "b")]
    with pytest.raises(AssetError, match="UMB111"):
        render(inputs(), twice)


def test_a_hash_sees_content_mode_and_path() -> None:
    one = Asset("a", b"1", 0o644)
    assert asset_hash(one) == asset_hash(Asset("b", b"1", 0o644))
    assert len({tree_hash([other]) for other in (one, Asset("b", b"1", 0o644), Asset("a", b"2", 0o644))}) == 3
    assert asset_hash(one) != asset_hash(Asset("a", b"1", 0o600))


def test_a_hash_does_not_see_the_order() -> None:
    one, other = Asset("a", b"1", 0o644), Asset("b", b"1", 0o644)
    assert tree_hash([one, other]) == tree_hash([other, one])


def test_trees_are_joined_in_order() -> None:
    assert [asset.path for asset in joined([rendering(Profile.KUBERNETES).by_recipe["kubeconfigs"]])]
