"""kube-apiserver's manifest: read, and held against the spec."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from tests.support.hosted_specs import hosted_spec
from tests.support.hosted_workloads import as_bytes, container, deployment, static_pod
from tests.support.manifests import json_values

from umbilical.assets.errors import AssetError
from umbilical.assets.hosted.kube_apiserver_manifest import flag_value, read_manifest
from umbilical.assets.hosted.spec import HostedSpec, KubeApiserver, Workload

STATIC = hosted_spec(kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml"))


def refusal(content: bytes, spec: HostedSpec | None = None) -> tuple[str, str]:
    with pytest.raises(AssetError) as refused:
        read_manifest(content, spec or hosted_spec())
    return refused.value.code, refused.value.why


def test_a_deployment_is_read_with_its_container() -> None:
    found = read_manifest(as_bytes(deployment()), hosted_spec())
    assert (found.index, found.container["name"], found.arguments_key) == (0, "kube-apiserver", "args")
    assert found.pod["terminationGracePeriodSeconds"] == 30


def test_a_static_pod_is_read_with_its_container() -> None:
    found = read_manifest(as_bytes(static_pod()), STATIC)
    assert (found.index, found.arguments_key) == (0, "command")
    assert found.pod is found.document["spec"]


def test_a_container_of_another_name_is_found_by_its_program() -> None:
    document = deployment()
    container(document)["name"] = "api"
    document["spec"]["template"]["spec"]["containers"].reverse()
    assert read_manifest(as_bytes(document), hosted_spec()).index == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a: *b", "aliases"),
        (b"[]", "no Deployment"),
        (b"{apiVersion: v1, kind: Pod}", "no Deployment"),
        (b"{apiVersion: extensions/v1beta1, kind: Deployment}", "apiVersion is not apps/v1"),
        (b"{apiVersion: apps/v1, kind: Deployment, spec: {}}", "no containers"),
        (b"{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: x}}}}", "cannot be read"),
        (
            b"{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: []}}}}",
            "none of its containers",
        ),
    ],
)
def test_something_else_is_refused(content: bytes, why: str) -> None:
    code, told = refusal(content)
    assert code == "UMB551"
    assert why in told


def test_a_pod_is_refused_where_a_deployment_was_told() -> None:
    assert "which kubeApiserver.workload says it is" in refusal(as_bytes(static_pod()))[1]


def test_arguments_that_are_no_texts_are_refused() -> None:
    document = deployment()
    container(document)["args"] = [1]
    container(document)["name"] = "x"
    assert refusal(as_bytes(document))[0] == "UMB551"


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("metadata", "namespace"), "elsewhere", "in the namespace elsewhere, the spec says clusters-guest"),
        (("metadata", "name"), "kas", "called kas, the spec says kube-apiserver"),
        (("spec", "replicas"), 2, "2 replicas, the spec says 3"),
        (("spec", "template", "metadata", "labels"), {"app": "x"}, "lack the labels app=kube-apiserver"),
    ],
)
def test_what_contradicts_the_spec_is_refused(path: tuple[str, ...], value: Any, why: str) -> None:
    document = deployment()
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    code, told = refusal(as_bytes(document))
    assert code == "UMB552"
    assert why in told


def test_a_kube_apiserver_that_takes_no_flags_is_refused_with_the_way_out() -> None:
    document = deployment()
    container(document)["args"] = ["--openshift-config=/etc/kubernetes/config/config.json"]
    assert "set egressFlag to false" in refusal(as_bytes(document))[1]
    allowed = hosted_spec(kube_apiserver=KubeApiserver(has_egress_flag=False))
    assert read_manifest(as_bytes(document), allowed).index == 0


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--a=1"], "1"), (["--a", "2"], "2"), (["--b=1"], None), (["--ab=1"], None), (["--a="], ""), (["--a"], "")],
)
def test_a_flag_is_found_in_either_form(words: list[str], value: str | None) -> None:
    assert flag_value({"command": ["x"], "args": words}, "--a") == value


@given(json_values())
def test_any_document_is_read_or_refused(value: Any) -> None:
    for document in ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": value, "spec": value}, value):
        with suppress(AssetError):
            read_manifest(as_bytes(document), hosted_spec())
