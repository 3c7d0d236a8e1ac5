"""Server-side apply: what changed is told, conflicts and unknown kinds are refused, and no Secret is in a message."""

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import on_plane, scripted
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, Request, json_answer, status_answer

from umbilical.cluster.apply import Applier, Change, Document, KindUnknown, read_document
from umbilical.cluster.errors import ApiRefused

real = pytest.mark.real(*PROGRAMS)


def config_map(name: str, **values: str) -> Document:
    found = read_document(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": values,
        }
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    "content",
    [
        None,
        "text",
        [],
        {},
        {"apiVersion": "v1", "kind": "Pod"},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
        {"apiVersion": "v1", "kind": "", "metadata": {"name": "a"}},
        {"kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": 7, "metadata": {"name": "a"}},
    ],
)
def test_what_is_no_object_is_read_as_none(content: Any) -> None:
    assert read_document(content) is None


def test_an_object_is_named_by_kind_place_and_name() -> None:
    assert str(config_map("a")) == "ConfigMap default/a"
    namespace = read_document({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    assert str(namespace) == "Namespace n"


@real
def test_an_object_is_created_then_unchanged_then_changed(plane: ControlPlane) -> None:
    def apply(document: Document) -> Change:
        return on_plane(plane, lambda client: Applier(client).apply(document))

    assert apply(config_map("steps", a="1")) is Change.CREATED
    assert apply(config_map("steps", a="1")) is Change.UNCHANGED
    assert apply(config_map("steps", a="2")) is Change.CHANGED
    assert plane.kubectl("get", "configmap", "steps", "-o", "jsonpath={.data.a}") == "2"
    managers = plane.kubectl("get", "configmap", "steps", "-o", "jsonpath={.metadata.managedFields[*].manager}")
    assert managers == "umbilical"


@real
def test_a_dry_run_tells_the_same_and_stores_nothing(plane: ControlPlane) -> None:
    def apply(document: Document, **options: bool) -> Change:
        return on_plane(plane, lambda client: Applier(client, **options).apply(document))

    assert apply(config_map("dry", a="1"), dry_run=True) is Change.CREATED
    assert plane.kubectl("get", "configmap", "dry", "--ignore-not-found") == ""
    apply(config_map("dry", a="1"))
    assert apply(config_map("dry", a="1"), dry_run=True) is Change.UNCHANGED
    assert apply(config_map("dry", a="2"), dry_run=True) is Change.CHANGED
    assert plane.kubectl("get", "configmap", "dry", "-o", "jsonpath={.data.a}") == "1"


@real
def test_a_field_of_another_manager_is_taken_only_by_force(plane: ControlPlane) -> None:
    plane.kubectl("create", "configmap", "owned", "--from-literal=a=theirs", "--field-manager=somebody")
    with pytest.raises(ApiRefused) as refusal:
        on_plane(plane, lambda client: Applier(client).apply(config_map("owned", a="ours")))
    assert refusal.value.status == 409
    assert "somebody" in refusal.value.message
    forced = on_plane(plane, lambda client: Applier(client, force=True).apply(config_map("owned", a="ours")))
    assert forced is Change.CHANGED


@real
def test_a_kind_that_the_cluster_does_not_serve_is_named(plane: ControlPlane) -> None:
    content = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g", "namespace": "default"}}
    document = read_document(content)
    assert document is not None
    with pytest.raises(KindUnknown) as fault:
        on_plane(plane, lambda client: Applier(client).apply(document))
    assert "Gadget of example.com/v1" in fault.value.why


@real
def test_a_kind_of_a_served_group_that_is_not_there_is_named(plane: ControlPlane) -> None:
    document = read_document({"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "g"}})
    assert document is not None
    with pytest.raises(KindUnknown):
        on_plane(plane, lambda client: Applier(client).apply(document))


def test_discovery_is_asked_once_per_group_and_parts_of_resources_are_no_kinds(tmp_path: Path) -> None:
    resources = [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": False},
    ]

    def answer(request: Request) -> Answer:
        return json_answer({"resources": resources} if request.path == "/api/v1" else {"data": {"a": "1"}})

    async def twice(client: Any) -> list[Change]:
        applier = Applier(client)
        return [await applier.apply(config_map(name, a="1")) for name in ("one", "two")]

    changes, requests = scripted(answer, twice, tmp_path)
    assert changes == [Change.UNCHANGED, Change.UNCHANGED]
    assert [request.path for request in requests].count("/api/v1") == 1
    patch = next(request for request in requests if request.method == "PATCH")
    assert patch.path == "/api/v1/namespaces/default/configmaps/one"
    assert patch.headers["content-type"] == "application/apply-patch+yaml"
    assert patch.query == {"fieldManager": "umbilical", "force": "false"}


def test_discovery_that_is_forbidden_is_not_taken_for_a_missing_kind(tmp_path: Path) -> None:
    with pytest.raises(ApiRefused):
        scripted(
            lambda _: status_answer(403, "Forbidden"), lambda client: Applier(client).apply(config_map("a")), tmp_path
        )


def test_no_value_of_a_secret_is_in_the_message_of_a_refusal(tmp_path: Path) -> None:
    value = base64.b64encode(b"a private key").decode()
    document = read_document(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "default"},
            "data": {"tls.key": value},
            "stringData": {"password": "open sesame", "flag": "true"},
        }
    )
    assert document is not None

    def answer(request: Request) -> Answer:
        if request.method == "PATCH":
            return status_answer(422, "Invalid", f"bad data {value}, bad word open sesame, this is true")
        if request.path == "/api/v1":
            return json_answer({"resources": [{"name": "secrets", "kind": "Secret", "namespaced": True}]})
        return status_answer(404, "NotFound")

    with pytest.raises(ApiRefused) as refusal:
        scripted(answer, lambda client: Applier(client).apply(document), tmp_path)
    assert value not in str(refusal.value)
    assert "sesame" not in str(refusal.value)
    assert "this is true" in str(refusal.value)
