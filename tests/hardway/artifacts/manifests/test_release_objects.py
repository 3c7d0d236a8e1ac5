"""Objects that come out of the release: the feature gate with its status, and security constraints."""

from contextlib import suppress
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.release_directory import CONSTRAINTS

from umbilical.fault import RenderError
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.config_resources import feature_gate, is_for
from umbilical.hardway.artifacts.manifests.rbac import CONSTRAINTS_FILE, security_constraints

NAME = "0000_50_cluster-config-api_featureGate-SelfManagedHA-Default.yaml"
PREFIX = "0000_20_kube-apiserver-operator_00"


def with_file(content: bytes, name: str = NAME) -> Inputs:
    inputs = hardway.inputs()
    others = {other: text for other, text in inputs.payload.manifests.items() if other != NAME}
    return replace(inputs, payload=replace(inputs.payload, manifests={**others, name: content}))


def test_the_status_has_the_releases_gates_under_its_version() -> None:
    (found,) = feature_gate(hardway.inputs())
    (entry,) = found["status"]["featureGates"]
    assert entry["version"] == hardway.VERSION
    assert [one["name"] for one in entry["disabled"]] == ["EtcdBackendQuota", "ExampleNewFeature"]
    assert {"name": "BuildCSIVolumes"} in entry["enabled"]
    assert found["spec"] == {"featureSet": ""}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (NAME, True),
        ("featureGate-SelfManagedHA-Default.yaml", True),
        ("0000_50_x_featureGate-4-10-SelfManagedHA-Default.yaml", True),
        ("0000_50_x_featureGate-1-4-SelfManagedHA-Default.yaml", True),
        ("0000_50_x_featureGate-4-SelfManagedHA-Default.yaml", True),
        ("0000_50_x_featureGate-5-SelfManagedHA-Default.yaml", False),
        ("0000_50_x_featureGate-5-10-SelfManagedHA-Default.yaml", False),
        ("0000_50_x_featureGate-1-3-SelfManagedHA-Default.yaml", False),
        ("featureGate-Hypershift-Default.yaml", False),
        ("featureGate-SelfManagedHA-TechPreviewNoUpgrade.yaml", False),
    ],
)
def test_the_file_is_known_by_its_names_in_old_and_new_releases(name: str, is_one: bool) -> None:
    assert is_for(name, 4) == is_one


@pytest.mark.parametrize("content", [b"[", b"{}", b"status: {featureGates: []}", b"status: {featureGates: [{}]}"])
def test_a_release_that_does_not_say_is_refused(content: bytes) -> None:
    with pytest.raises(RenderError, match="UMB719"):
        feature_gate(with_file(content))


def test_two_files_are_refused() -> None:
    content = hardway.inputs().payload.manifests[NAME]
    inputs = with_file(content)
    manifests = {**inputs.payload.manifests, "featureGate-4-10-SelfManagedHA-Default.yaml": content}
    with pytest.raises(RenderError, match="2 files"):
        feature_gate(replace(inputs, payload=replace(inputs.payload, manifests=manifests)))


def test_of_files_for_several_major_versions_that_of_the_release_is_read() -> None:
    content = hardway.inputs().payload.manifests[NAME]
    inputs = with_file(content, "featureGate-4-SelfManagedHA-Default.yaml")
    manifests = {**inputs.payload.manifests, "featureGate-5-10-SelfManagedHA-Default.yaml": b"{}"}
    (found,) = feature_gate(replace(inputs, payload=replace(inputs.payload, manifests=manifests)))
    assert {"name": "BuildCSIVolumes"} in found["status"]["featureGates"][0]["enabled"]


@given(
    st.one_of(
        st.binary(max_size=80),
        st.sampled_from(["a", 1, None, [1]]).map(
            lambda value: yaml.safe_dump(
                {"status": {"featureGates": [{"enabled": [{"name": value}], "disabled": value}]}}
            ).encode()
        ),
    )
)
def test_any_feature_gate_is_read_or_refused(content: bytes) -> None:
    with suppress(RenderError):
        feature_gate(with_file(content))


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
    manifests = {
        name: content for name, content in inputs.payload.manifests.items() if not CONSTRAINTS_FILE.fullmatch(name)
    }
    with pytest.raises(RenderError, match="UMB715"):
        security_constraints(replace(inputs, payload=replace(inputs.payload, manifests=manifests)))


@pytest.mark.parametrize(
    "content", [b"[", b"- 1", b"kind: Secret", b"kind: ClusterRole", b"{kind: ClusterRole, metadata: 1}"]
)
def test_anything_else_in_these_files_is_refused(content: bytes) -> None:
    with pytest.raises(RenderError, match="UMB715"):
        security_constraints(changed(x=content))


@given(st.binary(max_size=80))
def test_any_constraint_is_read_or_refused(content: bytes) -> None:
    with suppress(RenderError):
        security_constraints(changed(x=content))
