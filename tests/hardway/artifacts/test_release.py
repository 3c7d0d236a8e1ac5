"""A release's directory: images, version and custom resource definitions."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway, release_directory, release_names
from tests.support.release_directory import release_files

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.crds import bootstrap_crds, is_included, split_documents
from umbilical.hardway.artifacts.inputs import TUNNEL_IMAGE
from umbilical.hardway.artifacts.release import INFO, NEEDED, PROGRAMS, read_release, release_commands, upstream_payload
from umbilical.hardway.config.cluster import ClusterProfile, ReleaseSource
from umbilical.manifests.objects import DEFAULT_IMAGE

FILES = release_directory.release_payload().crds


def edited(name: str, change: Callable[[Any], object]) -> dict[str, bytes]:
    files = release_files()
    value = json.loads(files[name])
    change(value)
    return {**files, name: json.dumps(value).encode()}


def refusal(files: dict[str, bytes], source: ReleaseSource | None = None) -> RenderError:
    with pytest.raises(RenderError) as caught:
        read_release(files, source)
    assert len(str(caught.value).splitlines()) == 3
    return caught.value


def test_a_release_has_a_version_images_by_digest_and_its_files() -> None:
    payload = read_release(release_files())
    assert payload.version == release_names.VERSION
    assert payload.image == release_names.RELEASE_IMAGE
    assert payload.images == release_names.images()
    assert "0000_50_cluster-config-api_featureGate-SelfManagedHA-Default.yaml" in payload.manifests
    assert "0000_10_config_01_dnses.crd.yaml" in payload.crds
    assert not payload.crds.keys() & payload.manifests.keys()


def without(tag: str) -> dict[str, bytes]:
    def drop(value: Any) -> None:
        value["spec"]["tags"] = [one for one in value["spec"]["tags"] if one["name"] != tag]

    return edited("image-references", drop)


def test_every_needed_tag_has_to_be_there_and_the_tunnels_is_none() -> None:
    for tag in NEEDED:
        fault = refusal(without(tag))
        assert (fault.code, tag in fault.why) == ("UMB716", True)
    assert "apiserver-network-proxy" not in read_release(without("apiserver-network-proxy")).images


@pytest.mark.parametrize(
    "image", ["quay.io/a/b:4.18", "quay.io/a/b@sha256:12", "quay.io/a/b", "a b@sha256:" + "0" * 64]
)
def test_an_image_by_tag_is_refused(image: str) -> None:
    def rename(value: Any) -> None:
        value["spec"]["tags"][0]["from"]["name"] = image

    fault = refusal(edited("image-references", rename))
    assert (fault.code, image in fault.why) == ("UMB716", True)


@pytest.mark.parametrize("missing", ["image-references", "release-metadata"])
def test_a_directory_without_its_two_tables_is_no_release(missing: str) -> None:
    files = release_files()
    del files[missing]
    fault = refusal(files)
    assert (fault.code, missing in fault.why) == ("UMB715", True)


def test_another_version_than_was_asked_for_is_refused() -> None:
    fault = refusal(release_files(), ReleaseSource(version="4.19.1"))
    assert fault.code == "UMB715"
    assert "4.19.1" in fault.why


def test_an_image_that_the_configuration_names_by_digest_is_taken_as_it_is() -> None:
    files = release_files()
    del files[INFO]
    wanted = "mirror.example/ocp@sha256:" + "c" * 64
    assert read_release(files, ReleaseSource(image=wanted)).image == wanted


@pytest.mark.parametrize("wanted", ["mirror.example:5000/ocp:4.18.0-x86_64", "mirror.example:5000/ocp"])
def test_a_tag_becomes_a_digest_by_what_the_registry_said(wanted: str) -> None:
    found = read_release(release_files(), ReleaseSource(image=wanted)).image
    assert found == f"mirror.example:5000/ocp@{release_names.DIGEST}"


def test_without_a_digest_from_anywhere_nothing_is_guessed() -> None:
    files = release_files()
    del files[INFO]
    assert refusal(files, ReleaseSource(image="quay.io/a:1")).code == "UMB716"
    assert refusal(edited(INFO, lambda value: value.update(digest="sha256:1"))).code == "UMB716"


@pytest.mark.parametrize("name", ["image-references", "release-metadata", INFO])
@given(content=st.one_of(st.binary(max_size=60), st.sampled_from([b"[]", b"{}", b'{"spec": {"tags": [1]}}', b"NaN"])))
def test_any_content_of_a_table_is_read_or_refused(name: str, content: bytes) -> None:
    with suppress(RenderError):
        read_release({**release_files(), name: content})


def test_the_kubernetes_profile_has_one_image_for_each_program() -> None:
    payload = upstream_payload(ReleaseSource(repository="localhost", tag="lab", version="v1.37.1"))
    assert payload.images == hardway.payload(ClusterProfile.KUBERNETES).images
    assert set(PROGRAMS) == set(hardway.PROGRAMS)
    assert payload.version == "v1.37.1"
    loaded = upstream_payload(ReleaseSource(repository="localhost", tag="lab", tunnel_archive="image.tar"))
    assert {name for name, image in loaded.images.items() if image != payload.images[name]} == {TUNNEL_IMAGE}
    assert loaded.images[TUNNEL_IMAGE] == DEFAULT_IMAGE


def test_the_lines_that_extract_a_release_are_exact() -> None:
    info, extract = release_commands("quay.io/r:4.18", "pull secret.json", "release")
    assert info.line == (
        "oc adm release info quay.io/r:4.18 --registry-config 'pull secret.json' -o json > release/release.json"
    )
    assert extract.line == "oc adm release extract quay.io/r:4.18 --registry-config 'pull secret.json' --to=release"


def test_22_definitions_are_required_and_three_are_added_by_name() -> None:
    found = bootstrap_crds(FILES)
    assert sum(one.required for one in found) == crds.REQUIRED_COUNTS["4.18"] == 22
    assert tuple(one.name for one in found if not one.required) == crds.BY_NAME
    assert {one.name for one in found if one.required} == set(release_directory.REQUIRED)
    assert [one.name for one in found] == sorted(one.name for one in found)


@pytest.mark.parametrize(("asked", "chosen"), [("", "Default"), ("TechPreviewNoUpgrade", "TechPreviewNoUpgrade")])
def test_the_variant_of_the_feature_set_is_chosen_and_not_the_last_by_name(asked: str, chosen: str) -> None:
    found = {one.name: yaml.safe_load(one.content) for one in bootstrap_crds(FILES, asked)}
    annotations = found["infrastructures.config.openshift.io"]["metadata"]["annotations"]
    assert annotations[crds.FEATURE_SET] == chosen


def test_a_list_of_feature_sets_is_read_by_its_entries_and_other_profiles_are_left_out() -> None:
    assert is_included(release_directory.crd("a.b", feature_set="CustomNoUpgrade, Default"))
    assert not is_included(release_directory.crd("a.b", feature_set="NotDefault"))
    assert not is_included(release_directory.crd("a.b", profiles=("hypershift",)))


def test_two_documents_of_one_name_are_refused_with_both_files() -> None:
    name = "0000_10_config_01_dnses.crd.yaml"
    with pytest.raises(RenderError) as caught:
        bootstrap_crds({**FILES, "zz.crd.yaml": FILES[name]})
    assert caught.value.code == "UMB717"
    assert name in caught.value.why
    assert "zz.crd.yaml" in caught.value.why


def test_a_definition_that_is_needed_by_name_must_be_there() -> None:
    for missing in crds.BY_NAME:
        files = {name: content for name, content in FILES.items() if f"name: {missing}\n".encode() not in content}
        with pytest.raises(RenderError) as caught:
            bootstrap_crds(files)
        assert missing in caught.value.why


def test_a_release_in_which_nothing_is_marked_is_refused() -> None:
    files = {name: content.replace(b"bootstrap-required", b"other") for name, content in FILES.items()}
    with pytest.raises(RenderError) as caught:
        bootstrap_crds(files)
    assert "marked as required" in caught.value.why


def test_documents_of_one_file_are_cut_apart_and_keep_their_bytes() -> None:
    joined = b"# head\n---\n# only words\n--- # next\na: 1\n---\r\nb: |\n  ---\n  c\n...\n"
    assert split_documents(joined) == [b"a: 1\n", b"b: |\n  ---\n  c\n...\n"]
    several = b"---\n".join([FILES["0000_10_config_01_dnses.crd.yaml"], b"kind: Other\n"])
    found = bootstrap_crds({**FILES, "0000_10_config_01_dnses.crd.yaml": several})
    assert (
        next(one for one in found if one.name.startswith("dnses")).content == FILES["0000_10_config_01_dnses.crd.yaml"]
    )


@given(st.binary(max_size=100))
def test_any_file_is_read_or_refused(tail: bytes) -> None:
    content = b"kind: CustomResourceDefinition\n#release.openshift.io/bootstrap-required\n" + tail
    with suppress(RenderError):
        bootstrap_crds({**FILES, "x": content})
