"""How a keeper answers when its parts refuse. What it does in a whole lab is in test_lab.py."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.labs import small

from umbilical.lab.control import Message
from umbilical.lab.errors import LabError
from umbilical.lab.keeper_service import Service
from umbilical.lab.network import LabNetwork
from umbilical.lab.paths import LabDirectory


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A service without namespaces: its network was never built, its nodes have no anchors."""
    anchors = {node.name: os.getpid() for node in small().nodes}
    return Service(LabDirectory(tmp_path), small(), LabNetwork(small(), tmp_path / "netns"), anchors)


def answer(service: Service, operation: str, **arguments: object) -> Message:
    return asyncio.run(service._result(Message({"operation": operation, "arguments": arguments})))


def test_a_refusal_travels_as_its_four_parts(service: Service) -> None:
    code, what, why, remedy = answer(service, "stop", node="x").fields["fault"]
    assert code == "UMB819"
    assert what == "the keeper failed to do it"
    assert "KeyError" in why
    assert "keeper.log" in remedy


def test_an_unknown_node_is_told_by_its_own_code(service: Service) -> None:
    fault = LabError(*answer(service, "network", change="set_link", parameters=["nobody", True]).fields["fault"])
    assert fault.code == "UMB812"


def test_a_network_that_refuses_does_not_end_the_keeper(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    assert "fault" in answer(service, "network", change="set_link", parameters=["master-0", True]).fields
    assert "fault" in answer(service, "network", change="demolish", parameters=["master-0"]).fields
    assert answer(service, "processes").fields == {"processes": []}
    assert "demolish" in capfd.readouterr().err


def test_only_the_changes_that_are_listed_can_be_asked_for(service: Service) -> None:
    assert "fault" in answer(service, "network", change="build", parameters=["master-0"]).fields
    assert "fault" in answer(service, "__class__").fields


def test_stopping_with_nothing_running_is_done_at_once(service: Service) -> None:
    asyncio.run(service.stop())
    assert answer(service, "stop", node="master-0", name="nobody", kill=True).fields == {"exit_code": None}


def test_where_the_nodes_are_is_told(service: Service) -> None:
    anchors = answer(service, "anchors").fields["anchors"]
    assert anchors == dict.fromkeys(["bootstrap", "master-0"], os.getpid())
