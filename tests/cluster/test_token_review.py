"""Whose token opens the tunnel: upstream's texts for every fault, and real tokens that a real API server signed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane import KONNECTIVITY_AUDIENCE, PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, ScriptedApi, json_answer, status_answer

from umbilical.cluster import token_review
from umbilical.cluster.client import make_client
from umbilical.cluster.token_review import TokenRefused, TokenReviewer

real = pytest.mark.real(*PROGRAMS)
PREFIX = "Failed to validate authentication token, err:"
AGENT = "konnectivity-agent"
GOOD_NAME = f"system:serviceaccount:kube-system:{AGENT}"
REQUEST = "incoming request from"


async def _review(kubeconfig: Path, token: str, audience: str = KONNECTIVITY_AUDIENCE) -> str:
    """Give what the agent is told, nothing where it is let in."""
    async with make_client(kubeconfig) as client:
        reviewer = TokenReviewer(client, "kube-system", "konnectivity-agent", audience)
        try:
            await reviewer.authenticate(token)
        except TokenRefused as refusal:
            return str(refusal)
        return ""


async def _reviewed(answer: Answer, folder: Path) -> str:
    async with ScriptedApi(lambda request: answer) as api:
        fault = await _review(api.write_kubeconfig(folder), "the-token")
        (request,) = api.requests
        assert (request.method, request.path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
        assert request.body["spec"] == {"token": "the-token", "audiences": [KONNECTIVITY_AUDIENCE]}
        return fault


def _named(username: str) -> dict[str, Any]:
    return {"authenticated": True, "user": {"username": username}}


async def test_the_right_service_account_passes_and_every_fault_has_upstreams_text(tmp_path: Path) -> None:
    assert await _reviewed(json_answer({"status": _named(GOOD_NAME)}), tmp_path) == ""
    for status, text in (
        ({"error": "boom", "authenticated": True}, "boom"),
        ({"authenticated": False}, "service account jwt not valid"),
        ({}, "service account jwt not valid"),
        ({"authenticated": True}, "unexpected username format"),
        (_named("admin"), "unexpected username format"),
        (_named("system:node:a:b"), "username returned is not a service account"),
        (_named(f"system:serviceaccount:other:{AGENT}"), f'{REQUEST} "other" namespace. Expected "kube-system"'),
        (_named("system:serviceaccount:kube-system:x"), f'{REQUEST} "x" service account. Expected "{AGENT}"'),
    ):
        assert await _reviewed(json_answer({"status": status}), tmp_path) == f"{PREFIX}lookup failed: {text}"


async def test_a_refused_review_tells_one_line_and_the_log_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = await _reviewed(status_answer(403, "Forbidden", "not allowed"), tmp_path)
    assert fault == PREFIX + "Failed to authenticate request. err:not allowed"
    await _reviewed(status_answer(500, "InternalError"), tmp_path)
    assert caplog.records
    assert "the-token" not in caplog.text


async def test_reviews_that_fail_in_a_row_are_one_line_a_second_with_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any host may cause them."""
    now = [100.0]
    monkeypatch.setattr(token_review, "monotonic", lambda: now[0])
    answer = status_answer(403, "Forbidden", "not allowed")
    async with ScriptedApi(lambda request: answer) as api, make_client(api.write_kubeconfig(tmp_path)) as client:
        reviewer = TokenReviewer(client, "n", "s", "a")
        for step in (0.0, 0.1, 0.1, 1.0):
            now[0] += step
            with pytest.raises(TokenRefused):
                await reviewer.authenticate("t")
    first, second = (message for message in caplog.messages if message.startswith("token review failed"))
    assert second == f"{first} (2 more since the last such line)"


async def test_an_unreachable_api_refuses_and_never_admits(tmp_path: Path) -> None:
    async with ScriptedApi(lambda request: Answer()) as api:
        config = api.write_kubeconfig(tmp_path)
    fault = await _review(config, "t")
    assert fault.startswith(PREFIX + "Failed to authenticate request. err:")
    assert "\n" not in fault


async def test_the_caller_chooses_the_exception(tmp_path: Path) -> None:
    class Refused(Exception):
        pass

    answer = json_answer({"status": {}})
    async with ScriptedApi(lambda request: answer) as api, make_client(api.write_kubeconfig(tmp_path)) as client:
        with pytest.raises(Refused, match="jwt not valid"):
            await TokenReviewer(client, "n", "s", "a", refusal=Refused).authenticate("t")


@pytest.fixture(scope="module")
def reviewer_kubeconfig(plane: ControlPlane) -> Iterator[Path]:
    """A server with exactly the right that upstream's samples give it, and the agent's service account."""
    user = "system:konnectivity-server"
    plane.kubectl("-n", "kube-system", "create", "serviceaccount", "konnectivity-agent")
    plane.kubectl("-n", "kube-system", "create", "serviceaccount", "stranger")
    plane.kubectl("create", "clusterrolebinding", "konn", "--clusterrole=system:auth-delegator", f"--user={user}")
    yield plane.make_kubeconfig(user)
    plane.kubectl("delete", "clusterrolebinding", "konn")


@real
async def test_a_real_token_passes_and_another_is_refused(plane: ControlPlane, reviewer_kubeconfig: Path) -> None:
    token = plane.service_account_token("kube-system", AGENT)
    assert await _review(reviewer_kubeconfig, token) == ""
    fault = await _review(plane.make_kubeconfig("powerless"), token)
    assert "tokenreviews.authentication.k8s.io is forbidden" in fault
    fault = await _review(reviewer_kubeconfig, plane.service_account_token("kube-system", "stranger"))
    assert fault == f'{PREFIX}lookup failed: {REQUEST} "stranger" service account. Expected "{AGENT}"'
    fault = await _review(reviewer_kubeconfig, "forged")
    assert fault.startswith(PREFIX + "lookup failed: ")
    elsewhere = plane.service_account_token("kube-system", AGENT, "https://kubernetes.default.svc")
    fault = await _review(reviewer_kubeconfig, elsewhere)
    assert fault.startswith(PREFIX + "lookup failed: ")
    assert "audience" in fault
