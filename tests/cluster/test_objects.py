"""Objects by kind: paths, pages, metadata alone, and deletion of exactly the object that was seen."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.errors import ApiRefused
from umbilical.cluster.objects import DAEMON_SET, NAMESPACE, POD, SECRET

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
