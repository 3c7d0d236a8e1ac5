"""The hosted cluster: nodes as they are, agents' pods, and logs that are read, empty or refused."""

from pathlib import Path
from typing import Any

from tests.cluster.test_objects import scripted
from tests.support.scripted_api import Answer, Request, json_answer, status_answer

from umbilical.hosted.facts import HostedFacts, LogRead, Node
from umbilical.hosted.gather_hosted import look_at_agent_certificate, look_at_cluster


def node(name: str, address: str | None, ready: str, port: int | None = None) -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": address}] if address else []
    endpoints = {"kubeletEndpoint": {"Port": port}} if port else {}
    status = {"addresses": addresses, "conditions": [{"type": "Ready", "status": ready}], "daemonEndpoints": endpoints}
    return {"metadata": {"name": name}, "status": status}


def pod(name: str, on: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": on}, "status": {"phase": phase}}


def test_nodes_pods_and_logs_are_looked_at(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        match request.path.rpartition("/kube-system")[2]:
            case "/api/v1/nodes":
                return json_answer({"items": [node("n1", "10.0.0.1", "True", 10999), node("n2", None, "False")]})
            case "/pods":
                pods = [pod("a1", "n1"), pod("a2", "n2"), pod("a3", "n2"), pod("a4", "n2", "Pending")]
                return json_answer({"items": pods})
            case "/pods/a1/log":
                return Answer(b"connected to a server\n")
            case "/pods/a2/log":
                return Answer(b"\n")
            case "/pods/a3/log":
                return status_answer(500, "InternalError", "dial tcp 10.0.0.2:10250: i/o timeout")
        return status_answer(404, "NotFound")

    facts, requests = scripted(answer, look_at_cluster, tmp_path)
    assert isinstance(facts, HostedFacts)
    assert facts.nodes == (Node("n1", "10.0.0.1", 10999, True), Node("n2", "", 10250, False))
    assert facts.daemon_set is None
    assert len(facts.agent_pods) == 4
    assert facts.logs == (
        LogRead("a1", "n1"),
        LogRead("a2", "n2", "it is empty"),
        LogRead("a3", "n2", "dial tcp 10.0.0.2:10250: i/o timeout"),
    )
    logs = [request for request in requests if request.path.endswith("/log")]
    assert {request.query["container"] for request in logs} == {"konnectivity-agent"}
    assert {request.query["tailLines"] for request in logs} == {"1"}


def test_the_agents_certificate_that_is_missing_is_told(tmp_path: Path) -> None:
    fact, requests = scripted(
        lambda _: status_answer(404, "NotFound"), lambda client: look_at_agent_certificate(client, None), tmp_path
    )
    assert fact.trouble == "there is no such Secret"
    assert requests[0].path == "/api/v1/namespaces/kube-system/secrets/konnectivity-agent"
