"""Secrets and tokens from an API: there, not there, forbidden, out of reach."""

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster.client import make_client
from umbilical.lab.pods.api_objects import ApiObjects, token_request
from umbilical.lab.pods.errors import Waiting
from umbilical.lab.pods.spec import Container, Kind, Pod

POD = Pod("p", "ns", "u", (Container("a", "i"),), service_account="robot")


def asked(folder: Path, answer: Answer, *, for_token: bool = False) -> tuple[Any, Request]:
    async def run() -> tuple[Any, Request]:
        async with ScriptedApi(lambda _: answer) as server, make_client(server.write_kubeconfig(folder)) as client:
            objects = ApiObjects(client)
            if for_token:
                found: Any = await objects.token(POD, "audience", 600)
            else:
                found = await objects.values(Kind.SECRET, "ns", "s")
            return found, server.requests[0]

    return run_async(run())


def test_a_secrets_values_are_decoded(tmp_path: Path) -> None:
    data = {"key": base64.b64encode(b"value").decode()}
    found, request = asked(tmp_path, json_answer({"kind": "Secret", "data": data}))
    assert found == {"key": b"value"}
    assert request.path == "/api/v1/namespaces/ns/secrets/s"


def test_what_is_not_there_is_nothing_yet(tmp_path: Path) -> None:
    assert asked(tmp_path, status_answer(404, "NotFound"))[0] is None
    assert asked(tmp_path, status_answer(404, "NotFound"), for_token=True)[0] is None


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_refusal_is_waited_for(tmp_path: Path, status: int) -> None:
    with pytest.raises(Waiting, match="UMB834"):
        asked(tmp_path, status_answer(status, "No"))


def test_a_token_is_asked_for_this_pod_alone(tmp_path: Path) -> None:
    found, request = asked(tmp_path, json_answer({"status": {"token": "signed"}}), for_token=True)
    assert found == "signed"
    assert request.path == "/api/v1/namespaces/ns/serviceaccounts/robot/token"
    assert request.body["spec"]["boundObjectRef"] == {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


def test_no_audience_means_the_apis_own() -> None:
    assert token_request(POD, "", 600)["spec"]["audiences"] == []
