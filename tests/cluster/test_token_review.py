"""Whose token opens the tunnel: upstream's texts for every fault, and real tokens that a real API server signed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane import KONNECTIVITY_AUDIENCE, PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, ScriptedApi, json_answer, run_async, status_answer

from umbilical.cluster.client import make_client
from umbilical.cluster.token_review import TokenRefused, TokenReviewer

real = pytest.mark.real(*PROGRAMS)
PREFIX = "Failed to validate authentication token, err:"
GOOD_NAME = "system:serviceaccount:kube-system:konnectivity-agent"


async def _review(kubeconfig: Path, token: str, audience: str = KONNECTIVITY_AUDIENCE) -> str | None:
    async with make_client(kubeconfig) as client:
        reviewer = TokenReviewer(client, "kube-system", "konnectivity-agent", audience)
        try:
            await reviewer.authenticate(token)
        except TokenRefused as refusal:
            return str(refusal)
        return None


def _reviewed(answer: Answer, folder: Path) -> str | None:
    async def scenario() -> str | None:
        async with ScriptedApi(lambda request: answer) as api:
            fault = await _review(api.write_kubeconfig(folder), "the-token")
            (request,) = api.requests
            assert (request.method, request.path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
            assert request.body["spec"] == {"token": "the-token", "audiences": [KONNECTIVITY_AUDIENCE]}
            return fault

    return run_async(scenario())


def _named(username: str) -> dict[str, Any]:
    return {"authenticated": True, "user": {"username": username}}


def test_the_right_service_account_passes(tmp_path: Path) -> None:
    assert _reviewed(json_answer({"status": _named(GOOD_NAME)}), tmp_path) is None


def test_every_fault_has_upstreams_text(tmp_path: Path) -> None:
    for status, text in (
        ({"error": "boom", "authenticated": True}, "lookup failed: boom"),
        ({"authenticated": False}, "lookup failed: service account jwt not valid"),
        ({}, "lookup failed: service account jwt not valid"),
        ({"authenticated": True}, "lookup failed: unexpected username format"),
        (_named("admin"), "lookup failed: unexpected username format"),
        (_named("system:node:a:b"), "lookup failed: username returned is not a service account"),
        (
            _named("system:serviceaccount:other:konnectivity-agent"),
            'lookup failed: incoming request from "other" namespace. Expected "kube-system"',
        ),
        (
            _named("system:serviceaccount:kube-system:default"),
            'lookup failed: incoming request from "default" service account. Expected "konnectivity-agent"',
        ),
    ):
        assert _reviewed(json_answer({"status": status}), tmp_path) == PREFIX + text


def test_a_refused_review_tells_the_agent_one_line_and_the_log_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = _reviewed(status_answer(403, "Forbidden", "not allowed"), tmp_path)
    assert fault == PREFIX + "Failed to authenticate request. err:not allowed"
    _reviewed(status_answer(500, "InternalError"), tmp_path)
    assert caplog.records
    assert "the-token" not in caplog.text


def test_an_unreachable_api_refuses_and_never_admits(tmp_path: Path) -> None:
    async def scenario() -> str | None:
        async with ScriptedApi(lambda request: Answer()) as api:
            config = api.write_kubeconfig(tmp_path)
        return await _review(config, "t")

    fault = run_async(scenario())
    assert fault is not None
    assert fault.startswith(PREFIX + "Failed to authenticate request. err:")
    assert "\n" not in fault


def test_the_caller_chooses_the_exception(tmp_path: Path) -> None:
    class Refused(Exception):
        pass

    async def scenario() -> None:
        answer = json_answer({"status": {}})
        async with ScriptedApi(lambda request: answer) as api, make_client(api.write_kubeconfig(tmp_path)) as client:
            await TokenReviewer(client, "n", "s", "a", refusal=Refused).authenticate("t")

    with pytest.raises(Refused, match="jwt not valid"):
        run_async(scenario())


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
def test_a_real_token_passes_and_another_accounts_is_refused(plane: ControlPlane, reviewer_kubeconfig: Path) -> None:
    token = plane.service_account_token("kube-system", "konnectivity-agent")
    assert run_async(_review(reviewer_kubeconfig, token)) is None
    token = plane.service_account_token("kube-system", "stranger")
    fault = run_async(_review(reviewer_kubeconfig, token))
    assert fault == (
        PREFIX + 'lookup failed: incoming request from "stranger" service account. Expected "konnectivity-agent"'
    )
    fault = run_async(_review(reviewer_kubeconfig, "forged"))
    assert fault is not None
    assert fault.startswith(PREFIX + "lookup failed: ")


@real
def test_a_real_token_for_another_audience_is_refused(plane: ControlPlane, reviewer_kubeconfig: Path) -> None:
    token = plane.service_account_token("kube-system", "konnectivity-agent", "https://kubernetes.default.svc")
    fault = run_async(_review(reviewer_kubeconfig, token))
    assert fault is not None
    assert fault.startswith(PREFIX + "lookup failed: ")
    assert "audience" in fault


@real
def test_a_server_without_the_right_to_review_admits_nobody(plane: ControlPlane, reviewer_kubeconfig: Path) -> None:
    token = plane.service_account_token("kube-system", "konnectivity-agent")
    fault = run_async(_review(plane.make_kubeconfig("powerless"), token))
    assert fault is not None
    assert "tokenreviews.authentication.k8s.io is forbidden" in fault
