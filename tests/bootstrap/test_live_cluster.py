"""What the API tells of the agents."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, run_async, status_answer

from umbilical.bootstrap.live_cluster import ClusterAnswers, ask_cluster, pods_in_trouble, server_host
from umbilical.cluster.client import make_client

Json = dict[str, Any]
NAMESPACE = "/namespaces/tunnel"


def pod(name: str, phase: str = "Running", **status: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "tunnel"}, "status": {"phase": phase, **status}}


def asked(answer: Any, folder: Path) -> tuple[ClusterAnswers, list[Request]]:
    async def scenario() -> tuple[ClusterAnswers, list[Request]]:
        async with ScriptedApi(answer) as api, make_client(api.write_kubeconfig(folder)) as client:
            return await ask_cluster(client, "tunnel", 2041), api.requests

    return run_async(scenario())


def test_the_agents_are_looked_at_through_the_api(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.path.endswith("/proxy/readyz"):
            return Answer(b"ok") if "one" in request.path else Answer(b"not connected", 500)
        if "daemonsets" in request.path:
            return json_answer({"kind": "DaemonSet"})
        return json_answer({"items": [pod("one"), pod("two"), pod("three", "Pending")]})

    answers, requests = asked(answer, tmp_path)
    assert answers.daemon_set == {"kind": "DaemonSet"}
    assert answers.readiness == {"one": "ok", "two": "not connected"}
    assert requests[-1].path == f"/api/v1{NAMESPACE}/pods/two:2041/proxy/readyz"


def test_a_cluster_without_agents_is_no_fault(tmp_path: Path) -> None:
    answers, _ = asked(lambda request: status_answer(404, "NotFound"), tmp_path)
    assert answers.daemon_set is None
    assert answers.refusals
    assert answers.pods == []


def test_what_we_may_not_see_is_named(tmp_path: Path) -> None:
    answers, _ = asked(lambda request: status_answer(403, "Forbidden", "no daemonsets for you"), tmp_path)
    assert "no daemonsets for you" in answers.refusals[0]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, "ImagePullBackOff"),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]}, "Error"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
        ({"phase": "Pending"}, "Pending"),
    ],
)
def test_a_pod_in_trouble_has_kubernetes_own_word(status: Json, word: str) -> None:
    assert pods_in_trouble([pod("well"), {"metadata": {"name": "ill"}, "status": status}]) == [f"ill {word}"]


@pytest.mark.parametrize(
    ("container", "host"),
    [
        ({"args": ["--v=1", "--proxy-server-host=10.0.0.9"]}, "10.0.0.9"),
        ({"command": ["proxy-agent", "--proxy-server-host", "fd00::9"]}, "fd00::9"),
        ({"command": ["proxy-agent"], "args": None}, None),
        ({"args": ["--proxy-server-host"]}, None),
    ],
)
def test_what_agents_dial_is_read_from_their_arguments(container: Json, host: str | None) -> None:
    assert server_host({"spec": {"template": {"spec": {"containers": [container]}}}}) == host
    assert server_host({}) is None
