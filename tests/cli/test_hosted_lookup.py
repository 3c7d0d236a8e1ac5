"""ClusterIPs of Services, as a management cluster tells them."""

import asyncio
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async

from umbilical.assets.hosted.spec import AggregatedApi, HostedSpec
from umbilical.cli.hosted_lookup import addresses, with_looked_up

SPEC = hosted_spec(aggregated_apis=(AggregatedApi("named"),))


def service(name: str, *texts: str, label: str = "") -> dict[str, Any]:
    labels = {"umbilical.dev/aggregated-api": label} if label else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"clusterIPs": list(texts)}}


def test_services_are_found_by_name_and_by_label() -> None:
    named, labelled = service("named", "172.30.0.1", "fd00::1"), service("labelled", "172.30.0.2", label="true")
    found = addresses([named, labelled, service("other", "fd00::3")], SPEC)
    assert found == {
        "named": (ipaddress.ip_address("172.30.0.1"), ipaddress.ip_address("fd00::1")),
        "labelled": (ipaddress.ip_address("172.30.0.2"),),
    }


@pytest.mark.parametrize(
    "body", [{}, {"clusterIP": ""}, {"clusterIP": "None", "clusterIPs": ["None"]}, {"type": "ExternalName"}]
)
def test_a_service_without_an_address_is_left_out(body: dict[str, Any]) -> None:
    assert addresses([{"metadata": {"name": "named"}, "spec": body}], SPEC) == {}


def test_a_label_that_says_no_is_heard() -> None:
    assert addresses([service("x", "172.30.0.2", label="false")], SPEC) == {}


def test_only_the_control_planes_namespace_is_asked(tmp_path: Path) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return json_answer({"kind": "ServiceList", "metadata": {}, "items": [service("named", "172.30.0.1")]})

    async def scenario() -> HostedSpec:
        async with ScriptedApi(answer) as api:
            return await asyncio.to_thread(with_looked_up, SPEC, api.write_kubeconfig(tmp_path))

    assert [str(one) for one in run_async(scenario()).known_addresses] == ["172.30.0.1"]
    assert {request.path for request in asked} == {"/api/v1/namespaces/clusters-guest/services"}
