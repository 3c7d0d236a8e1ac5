"""Which kinds a cluster serves: asked once, asked again when a group was forgotten."""

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import scripted
from tests.support.scripted_api import Answer, Request, json_answer, status_answer

from umbilical.cluster.client import ApiClient
from umbilical.cluster.discovery import Discovery
from umbilical.cluster.errors import ApiRefused
from umbilical.cluster.objects import Kind

GADGETS = {"resources": [{"name": "gadgets", "kind": "Gadget", "namespaced": False}]}


def test_a_kind_is_found_where_its_group_serves_it(tmp_path: Path) -> None:
    async def find(client: ApiClient) -> list[Kind | None]:
        discovery = Discovery(client)
        return [await discovery.find("example.com/v1", kind) for kind in ("Gadget", "Widget")]

    found, requests = scripted(lambda _: json_answer(GADGETS), find, tmp_path)
    assert found == [Kind("Gadget", "/apis/example.com/v1", "gadgets", is_namespaced=False), None]
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
