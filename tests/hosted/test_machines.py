"""Nodes' addresses from the Machines of a control plane's namespace."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster.client import make_client
from umbilical.fault import ApiRefused, HostedError
from umbilical.hosted.machines import NodeMachine, find_machine

NAMESPACE = "clusters-a"


def machine(name: str, node: str = "", **addresses: str) -> dict[str, Any]:
    listed = [{"type": kind, "address": address} for kind, address in addresses.items()]
    reference = {"nodeRef": {"name": node}} if node else {}
    return {"metadata": {"name": name}, "status": {"addresses": listed, **reference}}


ITEMS = [
    machine("m0"),
    machine("m1", "worker-1", InternalDNS="worker-1.example", InternalIP="10.0.3.7", ExternalIP="203.0.113.7"),
    machine("m2", InternalIP="fd00::8"),
]


def found(answer: Callable[[Request], Answer], wanted: str | None, folder: Path) -> NodeMachine:
    async def ask() -> NodeMachine:
        async with ScriptedApi(answer) as api, make_client(api.write_kubeconfig(folder)) as client:
            return await find_machine(client, NAMESPACE, wanted)

    return run_async(ask())


def serves(version: str, items: list[dict[str, Any]]) -> Callable[[Request], Answer]:
    path = f"/apis/cluster.x-k8s.io/{version}/namespaces/{NAMESPACE}/machines"
    return lambda request: json_answer({"items": items}) if request.path == path else status_answer(404, "NotFound")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_machine_is_found_by_its_name_by_its_node_or_as_the_first_with_an_address(
    version: str, tmp_path: Path
) -> None:
    for wanted, name, url in (
        (None, "m1", "https://10.0.3.7:10250/metrics"),
        ("worker-1", "m1", "https://10.0.3.7:10250/metrics"),
        ("m2", "m2", "https://[fd00::8]:10250/metrics"),
    ):
        one = found(serves(version, ITEMS), wanted, tmp_path)
        assert (one.name, one.kubelet_url("/metrics")) == (name, url)


def test_without_such_a_machine_the_known_ones_are_named(tmp_path: Path) -> None:
    for answer, wanted, why in (
        (serves("v1beta1", ITEMS), "worker-9", "worker-1, m2"),
        (serves("v1beta1", [machine("m0")]), None, "none"),
        (serves("v9", ITEMS), None, "none"),
    ):
        with pytest.raises(HostedError) as fault:
            found(answer, wanted, tmp_path)
        assert fault.value.code == "UMB579"
        assert fault.value.why == f"Machines with an InternalIP: {why}"


def test_a_refusal_is_not_taken_for_an_empty_list(tmp_path: Path) -> None:
    with pytest.raises(ApiRefused):
        found(lambda _: status_answer(403, "Forbidden"), None, tmp_path)
