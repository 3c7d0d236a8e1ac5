"""Calls of the API: each with a client that is closed, and with a bound on the whole of it."""

import asyncio
from pathlib import Path

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.cluster.errors import ApiUnreachable, ClusterError
from umbilical.hardway.api import Api


@pytest.mark.real(*PROGRAMS)
def test_one_call_in_one_answer_out(plane: ControlPlane) -> None:
    api = Api(plane.kubeconfig)
    found = api.call(lambda client: objects.get(client, objects.NAMESPACE, "kube-system"))
    assert found is not None
    assert found["metadata"]["name"] == "kube-system"
    assert api.call(lambda client: client.get_text("/readyz")) == "ok"


@pytest.mark.real(*PROGRAMS)
def test_hundreds_of_questions_are_not_slowed_down_to_those_of_a_controller(plane: ControlPlane) -> None:
    async def ask(client: ApiClient) -> int:
        for _ in range(100):
            await client.get_text("/livez")
        return 100

    assert Api(plane.kubeconfig).call(ask, 60) == 100


@pytest.mark.real(*PROGRAMS)
def test_what_takes_too_long_is_an_api_that_does_not_answer(plane: ControlPlane) -> None:
    async def ask(client: ApiClient) -> None:
        await asyncio.sleep(60)

    with pytest.raises(ApiUnreachable) as raised:
        Api(plane.kubeconfig).call(ask, 0.05)
    assert "0.05 s" in raised.value.why


def test_without_a_kubeconfig_nothing_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ClusterError):
        Api(tmp_path / "none").call(lambda client: client.get_text("/readyz"))
