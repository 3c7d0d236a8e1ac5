"""Which definitions of a release come before operators."""

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support import release_directory

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway import crds
from umbilical.assets.hardway.crds import bootstrap_crds, is_included, is_required, split_documents

FILES = release_directory.release_payload().crds


def test_the_made_up_release_has_the_counts_of_a_real_one() -> None:
    made = list(release_directory.api_definitions().values())
    assert (len(made), len({one["metadata"]["name"] for one in made})) == (94, 48)
    included = [one for one in made if is_included(one)]
    assert (len(included), len({one["metadata"]["name"] for one in included})) == (42, 42)
    assert len([one for one in included if is_required(one)]) == 22


def test_22_definitions_are_required_and_three_are_added_by_name() -> None:
    found = bootstrap_crds(FILES)
    assert sum(one.required for one in found) == crds.REQUIRED_COUNTS["4.18"] == 22
    assert tuple(one.name for one in found if not one.required) == crds.BY_NAME
    assert {one.name for one in found if one.required} == set(release_directory.REQUIRED)
    assert [one.name for one in found] == sorted(one.name for one in found)


def test_the_default_variant_is_chosen_and_not_the_last_by_name() -> None:
    found = {one.name: yaml.safe_load(one.content) for one in bootstrap_crds(FILES)}
    annotations = found["infrastructures.config.openshift.io"]["metadata"]["annotations"]
    assert annotations[crds.FEATURE_SET] == "Default"


def test_another_feature_set_has_its_own_variants() -> None:
    found = {one.name: yaml.safe_load(one.content) for one in bootstrap_crds(FILES, "TechPreviewNoUpgrade")}
    annotations = found["infrastructures.config.openshift.io"]["metadata"]["annotations"]
    assert annotations[crds.FEATURE_SET] == "TechPreviewNoUpgrade"


def test_a_list_of_feature_sets_is_read_by_its_entries() -> None:
    document = release_directory.crd("a.b", feature_set="CustomNoUpgrade, Default")
    assert is_included(document)
    assert not is_included(release_directory.crd("a.b", feature_set="NotDefault"))


def test_other_profiles_are_left_out() -> None:
    assert not is_included(release_directory.crd("a.b", profiles=("hypershift",)))


def test_two_documents_of_one_name_are_refused_with_both_files() -> None:
    name = "0000_10_config_01_dnses.crd.yaml"
    with pytest.raises(AssetError) as caught:
        bootstrap_crds({**FILES, "zz.crd.yaml": FILES[name]})
    assert caught.value.code == "UMB717"
    assert name in caught.value.why
    assert "zz.crd.yaml" in caught.value.why


@pytest.mark.parametrize("missing", crds.BY_NAME)
def test_a_definition_that_is_needed_by_name_must_be_there(missing: str) -> None:
    files = {name: content for name, content in FILES.items() if f"name: {missing}\n".encode() not in content}
    with pytest.raises(AssetError) as caught:
        bootstrap_crds(files)
    assert missing in caught.value.why


def test_a_release_in_which_nothing_is_marked_is_refused() -> None:
    files = {name: content.replace(b"bootstrap-required", b"other") for name, content in FILES.items()}
    with pytest.raises(AssetError) as caught:
        bootstrap_crds(files)
    assert "marked as needed" in caught.value.why


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
    with suppress(AssetError):
        bootstrap_crds({**FILES, "x": content})
