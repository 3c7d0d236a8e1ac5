"""Security context constraints out of the release."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.release_directory import CONSTRAINTS

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.hardway.manifests.security_constraints import FILE, security_constraints

PREFIX = "0000_20_kube-apiserver-operator_00"


def changed(**files: bytes) -> Inputs:
    inputs = hardway.inputs()
    named = {f"{PREFIX}_scc-{name}.yaml": content for name, content in files.items()}
    return replace(inputs, payload=replace(inputs.payload, manifests={**inputs.payload.manifests, **named}))


def test_every_constraint_has_its_role_and_everybody_the_restricted_one() -> None:
    found = security_constraints(hardway.inputs())
    kinds = [one["kind"] for one in found]
    assert kinds == sorted(kinds, key=["SecurityContextConstraints", "ClusterRole", "ClusterRoleBinding"].index)
    names = {(one["kind"], one["metadata"]["name"]) for one in found}
    for name in CONSTRAINTS:
        assert {("SecurityContextConstraints", name), ("ClusterRole", f"system:openshift:scc:{name}")} <= names
    assert kinds.count("ClusterRoleBinding") == 1


def test_those_of_other_profiles_are_left_out() -> None:
    content = b"{kind: SecurityContextConstraints, metadata: {name: other, annotations: {}}}"
    assert security_constraints(changed(other=content)) == security_constraints(hardway.inputs())


def test_a_release_without_constraints_is_refused() -> None:
    inputs = hardway.inputs()
    manifests = {name: content for name, content in inputs.payload.manifests.items() if not FILE.fullmatch(name)}
    with pytest.raises(AssetError) as caught:
        security_constraints(replace(inputs, payload=replace(inputs.payload, manifests=manifests)))
    assert caught.value.code == "UMB715"


@pytest.mark.parametrize(
    "content", [b"[", b"- 1", b"kind: Secret", b"kind: ClusterRole", b"{kind: ClusterRole, metadata: 1}"]
)
def test_anything_else_in_these_files_is_refused(content: bytes) -> None:
    with pytest.raises(AssetError) as caught:
        security_constraints(changed(x=content))
    assert caught.value.code == "UMB715"


@given(st.binary(max_size=80))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    with suppress(AssetError):
        security_constraints(changed(x=content))
