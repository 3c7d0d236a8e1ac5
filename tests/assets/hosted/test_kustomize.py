"""The files by which kustomize finds its way."""

from umbilical.assets.hosted.kustomize import base, component, deployment


def test_a_base_lists_its_files_in_one_order() -> None:
    assert base(["b.yaml", "a.yaml"])["resources"] == ["a.yaml", "b.yaml"]
    assert base([])["kind"] == "Kustomization"


def test_a_component_patches_in_the_order_given() -> None:
    found = component({"b.patch": deployment("one"), "a.patch": deployment("two")})
    assert found["kind"] == "Component"
    assert [(one["path"], one["target"]["name"]) for one in found["patches"]] == [
        ("b.patch", "one"),
        ("a.patch", "two"),
    ]
