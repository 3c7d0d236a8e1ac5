"""Objects of the Kubernetes API: read, created, applied, discovered."""

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster import objects
from umbilical.cluster.apply import (
    AppliedChange,
    Applier,
    CreateOutcome,
    CreateResult,
    CreationError,
    Creator,
    KindUnknown,
    ManifestDocument,
    read_document,
)
from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, POD, SECRET, ApiKind, Discovery
from umbilical.fault import ApiRefused

ResultT = TypeVar("ResultT")
real = pytest.mark.real(*PROGRAMS)


def scripted(
    answer: Callable[[Request], Answer], act: Callable[[ApiClient], Awaitable[ResultT]], folder: Path
) -> tuple[ResultT, list[Request]]:
    async def scenario() -> tuple[ResultT, list[Request]]:
        async with ScriptedApi(answer) as api, make_client(api.write_kubeconfig(folder)) as client:
            return await act(client), api.requests

    return run_async(scenario())


def on_plane(plane: ControlPlane, act: Callable[[ApiClient], Awaitable[ResultT]]) -> ResultT:
    async def scenario() -> ResultT:
        async with make_client(plane.kubeconfig) as client:
            return await act(client)

    return run_async(scenario())


def test_paths_are_the_apis_own() -> None:
    assert NAMESPACE.path(name="a") == "/api/v1/namespaces/a"
    assert POD.path() == "/api/v1/pods"
    assert SECRET.path("kube-system") == "/api/v1/namespaces/kube-system/secrets"
    assert DAEMON_SET.path("n", "d") == "/apis/apps/v1/namespaces/n/daemonsets/d"


def test_an_object_that_is_missing_is_none_and_another_refusal_is_raised(tmp_path: Path) -> None:
    missing, _ = scripted(lambda _: status_answer(404, "NotFound"), lambda c: objects.get(c, POD, "p", "n"), tmp_path)
    assert missing is None
    with pytest.raises(ApiRefused):
        scripted(lambda _: status_answer(403, "Forbidden"), lambda c: objects.get(c, POD, "p", "n"), tmp_path)


def test_a_list_is_read_page_by_page(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        last = request.query.get("continue") == "more"
        following: dict[str, Any] = {} if last else {"continue": "more"}
        return json_answer({"metadata": following, "items": [{"n": 2 if last else 1}, "no object"]})

    found, requests = scripted(answer, lambda c: objects.list_objects(c, POD, "n", "a=b"), tmp_path)
    assert found == [{"n": 1}, {"n": 2}]
    assert [request.query["labelSelector"] for request in requests] == ["a=b", "a=b"]


def test_a_list_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_PAGES", 3)
    endless = json_answer({"metadata": {"continue": "more"}, "items": [{}]})
    found, requests = scripted(lambda _: endless, lambda c: objects.list_objects(c, POD), tmp_path)
    assert len(found) == len(requests) == 3


def test_fields_of_odd_objects_are_none() -> None:
    assert objects.field({"a": {"b": 1}}, "a", "b") == 1
    assert objects.field({"a": [1]}, "a", "b") is None
    assert objects.metadata({"metadata": "odd"}) == {}
    assert objects.items("odd") == []


def secret(name: str) -> dict[str, object]:
    labels = {"kept": "no"}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "hidden"}}


@real
def test_metadata_comes_without_a_secrets_content(plane: ControlPlane) -> None:
    plane.apply(secret("one"), secret("two"))
    (first, second) = on_plane(plane, lambda c: objects.list_metadata(c, SECRET, "default", "kept=no"))
    assert objects.metadata(first)["name"] == "one"
    assert "data" not in first
    assert "data" not in second
    single = on_plane(plane, lambda c: objects.get_metadata(c, SECRET, "one", "default"))
    assert single is not None
    assert single["kind"] == "PartialObjectMetadata"


@real
def test_only_the_object_that_was_seen_is_deleted(plane: ControlPlane) -> None:
    plane.apply(secret("seen"))
    uid = plane.kubectl("get", "secret", "seen", "-o", "jsonpath={.metadata.uid}")
    plane.kubectl("delete", "secret", "seen")
    plane.apply(secret("seen"))
    with pytest.raises(ApiRefused) as caught:
        on_plane(plane, lambda c: objects.delete(c, SECRET, "seen", "default", uid))
    assert caught.value.status == 409
    assert plane.kubectl("get", "secret", "seen", "-o", "name")


@real
def test_a_dry_run_deletes_nothing_and_a_real_one_does(plane: ControlPlane) -> None:
    plane.apply(secret("dry"))
    uid = plane.kubectl("get", "secret", "dry", "-o", "jsonpath={.metadata.uid}")
    on_plane(plane, lambda c: objects.delete(c, SECRET, "dry", "default", uid, dry_run=True))
    assert plane.kubectl("get", "secret", "dry", "-o", "name")
    on_plane(plane, lambda c: objects.delete(c, SECRET, "dry", "default", uid))
    with pytest.raises(ApiRefused) as caught:
        on_plane(plane, lambda c: objects.delete(c, SECRET, "dry", "default", uid))
    assert caught.value.status == 404


@real
def test_text_comes_as_it_is(plane: ControlPlane) -> None:
    assert on_plane(plane, lambda c: c.get_text("/readyz")) == "ok"


RESOURCES = {
    "resources": [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "secrets", "kind": "Secret", "namespaced": True},
    ]
}


def without_objects(write: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """An API that knows the kinds and has no object yet; `write` answers whoever makes one."""

    def answer(request: Request) -> Answer:
        if request.path == "/api/v1":
            return json_answer(RESOURCES)
        return status_answer(404, "NotFound") if request.method == "GET" else write(request)

    return answer


def document(**content: Any) -> ManifestDocument:
    found = read_document(content)
    assert found is not None
    return found


def config_map(name: str, namespace: str = "default", **more: Any) -> ManifestDocument:
    return document(apiVersion="v1", kind="ConfigMap", metadata={"name": name, "namespace": namespace}, **more)


def gadget_crd(name: str) -> ManifestDocument:
    """A kind of its own for each test, with a status subresource."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: dict[str, Any] = {"name": "v1", "served": True, "storage": True}
    version |= {"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    names = {"kind": name.capitalize(), "plural": f"{name}s", "singular": name}
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]}
    kind, metadata = "CustomResourceDefinition", {"name": f"{name}s.example.com"}
    return document(apiVersion="apiextensions.k8s.io/v1", kind=kind, metadata=metadata, spec=spec)


def create(documents: list[ManifestDocument], seconds: float = 60.0) -> Any:
    async def run(client: ApiClient) -> list[CreateResult]:
        return await Creator(client).create(documents, seconds)

    return run


@real
def test_an_object_that_comes_before_its_kind_waits_for_it_and_gets_its_status(plane: ControlPlane) -> None:
    state = {"topology": "HighlyAvailable"}
    custom = document(apiVersion="example.com/v1", kind="Early", metadata={"name": "one"}, spec={"a": 1}, status=state)
    results = on_plane(plane, create([custom, gadget_crd("early")]))
    assert [(str(one.document), one.outcome, one.wrote_status) for one in results] == [
        ("Early one", CreateOutcome.CREATED, True),
        ("CustomResourceDefinition earlys.example.com", CreateOutcome.CREATED, False),
    ]
    assert plane.kubectl("get", "early", "one", "-o", "jsonpath={.status.topology}") == "HighlyAvailable"


@real
def test_what_exists_is_left_alone_and_a_status_that_it_lacks_is_written(plane: ControlPlane) -> None:
    on_plane(plane, create([gadget_crd("live")]))
    plane.kubectl("create", "configmap", "kept", "--from-literal=a=theirs")
    bare = document(apiVersion="example.com/v1", kind="Live", metadata={"name": "one"})
    on_plane(plane, create([bare]))
    wanted = document(apiVersion="example.com/v1", kind="Live", metadata={"name": "one"}, status={"is": "written"})
    results = on_plane(plane, create([config_map("kept", data={"a": "ours"}), wanted]))
    assert [(one.outcome, one.wrote_status) for one in results] == [
        (CreateOutcome.EXISTED, False),
        (CreateOutcome.EXISTED, True),
    ]
    assert plane.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "theirs"
    again = on_plane(plane, create([document(**{**wanted.content, "status": {"is": "other"}})]))
    assert not again[0].wrote_status
    assert plane.kubectl("get", "live", "one", "-o", "jsonpath={.status.is}") == "written"


@real
def test_a_namespace_that_comes_later_is_waited_for(plane: ControlPlane) -> None:
    namespace = document(apiVersion="v1", kind="Namespace", metadata={"name": "later"})
    results = on_plane(plane, create([config_map("first", "later"), namespace]))
    assert [one.outcome for one in results] == [CreateOutcome.CREATED, CreateOutcome.CREATED]


@real
def test_what_is_still_missing_at_the_end_is_named_with_the_last_words_of_the_api(plane: ControlPlane) -> None:
    with pytest.raises(CreationError) as fault:
        on_plane(plane, create([config_map("a", "nowhere"), config_map("b", "nowhere")], 1.0))
    assert fault.value.code == "UMB740"
    assert "ConfigMap nowhere/a" in fault.value.what
    assert "1 more" in fault.value.what
    assert '"nowhere" not found' in fault.value.why


@real
def test_an_object_that_stays_invalid_ends_the_waiting(plane: ControlPlane) -> None:
    wrong = document(
        apiVersion="v1", kind="Service", metadata={"name": "s", "namespace": "default"}, spec={"ports": []}
    )
    with pytest.raises(CreationError) as fault:
        on_plane(plane, create([wrong], 600.0))
    assert fault.value.code == "UMB741"
    assert "spec.ports" in fault.value.why


def test_a_request_that_the_api_cannot_read_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(CreationError, match="UMB741"):
        scripted(without_objects(lambda _: status_answer(400, "BadRequest")), create([config_map("a")]), tmp_path)


def test_no_value_of_a_secret_is_told_when_it_is_refused(tmp_path: Path) -> None:
    value = base64.b64encode(b"a private key").decode()
    place = {"name": "s", "namespace": "default"}
    secret = document(apiVersion="v1", kind="Secret", metadata=place, data={"tls.key": value})
    refusal = json_answer({"kind": "Status", "code": 400, "message": f"cannot use {value} here"}, 400)
    with pytest.raises(CreationError) as fault:
        scripted(without_objects(lambda _: refusal), create([secret]), tmp_path)
    assert value not in str(fault.value)
    assert "(hidden)" in str(fault.value)


def test_a_lost_answer_and_a_server_error_are_tried_again(tmp_path: Path) -> None:
    answers = iter(
        [*(status_answer(code, "Busy") for code in (503, 500, 429)), json_answer({"metadata": {"name": "a"}})]
    )
    told: list[CreateResult] = []

    async def run(client: ApiClient) -> list[CreateResult]:
        return await Creator(client, told.append).create([config_map("a")], 60.0)

    results, requests = scripted(without_objects(lambda _: next(answers)), run, tmp_path)
    written = [request.path for request in requests if request.method == "POST"]
    assert written == ["/api/v1/namespaces/default/configmaps"] * 4
    assert results == told


def applied_map(name: str, **values: str) -> ManifestDocument:
    return config_map(name, data=values)


def test_what_is_no_object_is_read_as_none() -> None:
    contents: list[Any] = [
        *(None, "text", [], {}, {"apiVersion": "v1", "kind": "Pod"}),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
        {"apiVersion": "v1", "kind": "", "metadata": {"name": "a"}},
        {"kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": 7, "metadata": {"name": "a"}},
    ]
    assert [content for content in contents if read_document(content) is not None] == []


def test_an_object_is_named_by_kind_place_and_name() -> None:
    assert str(applied_map("a")) == "ConfigMap default/a"
    namespace = read_document({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    assert str(namespace) == "Namespace n"


@real
def test_an_object_is_created_then_unchanged_then_changed(plane: ControlPlane) -> None:
    def apply(document: ManifestDocument) -> AppliedChange:
        return on_plane(plane, lambda client: Applier(client).apply(document))

    assert apply(applied_map("steps", a="1")) is AppliedChange.CREATED
    assert apply(applied_map("steps", a="1")) is AppliedChange.UNCHANGED
    assert apply(applied_map("steps", a="2")) is AppliedChange.CHANGED
    assert plane.kubectl("get", "configmap", "steps", "-o", "jsonpath={.data.a}") == "2"
    managers = plane.kubectl("get", "configmap", "steps", "-o", "jsonpath={.metadata.managedFields[*].manager}")
    assert managers == "umbilical"


@real
def test_a_dry_run_tells_the_same_and_stores_nothing(plane: ControlPlane) -> None:
    def apply(document: ManifestDocument, **options: bool) -> AppliedChange:
        return on_plane(plane, lambda client: Applier(client, **options).apply(document))

    assert apply(applied_map("dry", a="1"), dry_run=True) is AppliedChange.CREATED
    assert plane.kubectl("get", "configmap", "dry", "--ignore-not-found") == ""
    apply(applied_map("dry", a="1"))
    assert apply(applied_map("dry", a="1"), dry_run=True) is AppliedChange.UNCHANGED
    assert apply(applied_map("dry", a="2"), dry_run=True) is AppliedChange.CHANGED
    assert plane.kubectl("get", "configmap", "dry", "-o", "jsonpath={.data.a}") == "1"


@real
def test_a_field_of_another_manager_is_taken_only_by_force(plane: ControlPlane) -> None:
    plane.kubectl("create", "configmap", "owned", "--from-literal=a=theirs", "--field-manager=somebody")
    with pytest.raises(ApiRefused) as refusal:
        on_plane(plane, lambda client: Applier(client).apply(applied_map("owned", a="ours")))
    assert refusal.value.status == 409
    assert "somebody" in refusal.value.message
    forced = on_plane(plane, lambda client: Applier(client, force=True).apply(applied_map("owned", a="ours")))
    assert forced is AppliedChange.CHANGED


@real
def test_a_kind_that_the_cluster_does_not_serve_is_named(plane: ControlPlane) -> None:
    for version in ("example.com/v1", "v1"):
        gadget = document(apiVersion=version, kind="Gadget", metadata={"name": "g", "namespace": "default"})
        with pytest.raises(KindUnknown) as fault:
            on_plane(plane, lambda client, gadget=gadget: Applier(client).apply(gadget))  # type: ignore[misc]
        assert f"Gadget of {version}" in fault.value.why


def test_discovery_is_asked_once_per_group_and_parts_of_resources_are_no_kinds(tmp_path: Path) -> None:
    resources = [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": False},
    ]

    def answer(request: Request) -> Answer:
        return json_answer({"resources": resources} if request.path == "/api/v1" else {"data": {"a": "1"}})

    async def twice(client: Any) -> list[AppliedChange]:
        applier = Applier(client)
        return [await applier.apply(applied_map(name, a="1")) for name in ("one", "two")]

    changes, requests = scripted(answer, twice, tmp_path)
    assert changes == [AppliedChange.UNCHANGED, AppliedChange.UNCHANGED]
    assert [request.path for request in requests].count("/api/v1") == 1
    patch = next(request for request in requests if request.method == "PATCH")
    assert patch.path == "/api/v1/namespaces/default/configmaps/one"
    assert patch.headers["content-type"] == "application/apply-patch+yaml"
    assert patch.query == {"fieldManager": "umbilical", "force": "false"}


def test_no_value_of_a_secret_is_in_the_message_of_a_refusal(tmp_path: Path) -> None:
    value = base64.b64encode(b"a private key").decode()
    place = {"name": "s", "namespace": "default"}
    texts = {"password": "open sesame", "flag": "true"}
    refused = document(apiVersion="v1", kind="Secret", metadata=place, data={"tls.key": value}, stringData=texts)
    answer = status_answer(422, "Invalid", f"bad data {value}, bad word open sesame, this is true")
    with pytest.raises(ApiRefused) as refusal:
        scripted(without_objects(lambda _: answer), lambda client: Applier(client).apply(refused), tmp_path)
    assert value not in str(refusal.value)
    assert "sesame" not in str(refusal.value)
    assert "this is true" in str(refusal.value)


GADGETS = {"resources": [{"name": "gadgets", "kind": "Gadget", "namespaced": False}]}


def test_a_kind_is_found_where_its_group_serves_it(tmp_path: Path) -> None:
    async def find(client: ApiClient) -> list[ApiKind | None]:
        discovery = Discovery(client)
        return [await discovery.find("example.com/v1", kind) for kind in ("Gadget", "Widget")]

    found, requests = scripted(lambda _: json_answer(GADGETS), find, tmp_path)
    assert found == [ApiKind("Gadget", "/apis/example.com/v1", "gadgets", is_namespaced=False), None]
    assert [request.path for request in requests] == ["/apis/example.com/v1"]


def test_a_group_that_was_forgotten_is_asked_again(tmp_path: Path) -> None:
    answers = iter([status_answer(404, "NotFound"), json_answer(GADGETS)])

    def answer(request: Request) -> Answer:
        return next(answers)

    async def find(client: ApiClient) -> list[bool]:
        discovery = Discovery(client)
        seen = [await discovery.find("example.com/v1", "Gadget") is not None for _ in range(2)]
        discovery.forget("example.com/v1")
        discovery.forget("never.asked/v1")
        return [*seen, await discovery.find("example.com/v1", "Gadget") is not None]

    found, _ = scripted(answer, find, tmp_path)
    assert found == [False, False, True]


def test_a_refusal_is_not_taken_for_a_missing_group(tmp_path: Path) -> None:
    async def find(client: ApiClient) -> Any:
        return await Discovery(client).find("v1", "Pod")

    with pytest.raises(ApiRefused):
        scripted(lambda _: status_answer(403, "Forbidden"), find, tmp_path)
