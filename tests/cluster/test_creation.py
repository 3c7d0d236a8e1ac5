"""Objects of a cluster that is being born: created in order, retried while there is hope, never overwritten."""

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import on_plane, scripted
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, Request, json_answer, status_answer

from umbilical.cluster.apply import Document, read_document
from umbilical.cluster.client import ApiClient
from umbilical.cluster.creation import CreationError, Creator, Outcome, Result

real = pytest.mark.real(*PROGRAMS)
RESOURCES = {
    "resources": [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "secrets", "kind": "Secret", "namespaced": True},
    ]
}


def document(**content: Any) -> Document:
    found = read_document(content)
    assert found is not None
    return found


def config_map(name: str, namespace: str = "default", **more: Any) -> Document:
    return document(apiVersion="v1", kind="ConfigMap", metadata={"name": name, "namespace": namespace}, **more)


def gadget_crd(name: str) -> Document:
    """A kind of its own for each test, with a status subresource."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return document(
        apiVersion="apiextensions.k8s.io/v1",
        kind="CustomResourceDefinition",
        metadata={"name": f"{name}s.example.com"},
        spec={
            "group": "example.com",
            "names": {"kind": name.capitalize(), "plural": f"{name}s", "singular": name},
            "scope": "Cluster",
            "versions": [version],
        },
    )


def create(documents: list[Document], seconds: float = 60.0) -> Any:
    async def run(client: ApiClient) -> list[Result]:
        return await Creator(client).create(documents, seconds)

    return run


@real
def test_an_object_that_comes_before_its_kind_waits_for_it_and_gets_its_status(plane: ControlPlane) -> None:
    custom = document(
        apiVersion="example.com/v1",
        kind="Early",
        metadata={"name": "one"},
        spec={"a": 1},
        status={"topology": "HighlyAvailable"},
    )
    results = on_plane(plane, create([custom, gadget_crd("early")]))
    assert [(str(one.document), one.outcome, one.wrote_status) for one in results] == [
        ("Early one", Outcome.CREATED, True),
        ("CustomResourceDefinition earlys.example.com", Outcome.CREATED, False),
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
    assert [(one.outcome, one.wrote_status) for one in results] == [(Outcome.EXISTED, False), (Outcome.EXISTED, True)]
    assert plane.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "theirs"
    again = on_plane(plane, create([document(**{**wanted.content, "status": {"is": "other"}})]))
    assert not again[0].wrote_status
    assert plane.kubectl("get", "live", "one", "-o", "jsonpath={.status.is}") == "written"


@real
def test_a_namespace_that_comes_later_is_waited_for(plane: ControlPlane) -> None:
    namespace = document(apiVersion="v1", kind="Namespace", metadata={"name": "later"})
    results = on_plane(plane, create([config_map("first", "later"), namespace]))
    assert [one.outcome for one in results] == [Outcome.CREATED, Outcome.CREATED]


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
    def answer(request: Request) -> Answer:
        if request.path == "/api/v1":
            return json_answer(RESOURCES)
        return status_answer(404, "NotFound") if request.method == "GET" else status_answer(400, "BadRequest")

    with pytest.raises(CreationError) as fault:
        scripted(answer, create([config_map("a")]), tmp_path)
    assert fault.value.code == "UMB741"


def test_no_value_of_a_secret_is_told_when_it_is_refused(tmp_path: Path) -> None:
    value = base64.b64encode(b"a private key").decode()
    secret = document(
        apiVersion="v1", kind="Secret", metadata={"name": "s", "namespace": "default"}, data={"tls.key": value}
    )

    def answer(request: Request) -> Answer:
        if request.path == "/api/v1":
            return json_answer(RESOURCES)
        if request.method == "GET":
            return status_answer(404, "NotFound")
        return json_answer({"kind": "Status", "code": 400, "message": f"cannot use {value} here"}, 400)

    with pytest.raises(CreationError) as fault:
        scripted(answer, create([secret]), tmp_path)
    assert value not in str(fault.value)
    assert "(hidden)" in str(fault.value)


def test_a_lost_answer_and_a_server_error_are_tried_again(tmp_path: Path) -> None:
    codes = iter([503, 500, 429])
    made: list[str] = []

    def answer(request: Request) -> Answer:
        if request.path == "/api/v1":
            return json_answer(RESOURCES)
        if request.method == "GET":
            return status_answer(404, "NotFound")
        code = next(codes, None)
        if code is not None:
            return status_answer(code, "Busy")
        made.append(request.path)
        return json_answer({"metadata": {"name": "a"}})

    told: list[Result] = []

    async def run(client: ApiClient) -> list[Result]:
        return await Creator(client, told.append).create([config_map("a")], 60.0)

    results, _ = scripted(answer, run, tmp_path)
    assert made == ["/api/v1/namespaces/default/configmaps"]
    assert results == told
