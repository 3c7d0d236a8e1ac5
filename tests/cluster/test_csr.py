"""Signing requests of a real API server: the expected node's are approved, the others stay pending with a reason."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cluster.test_objects import on_plane
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.signing_requests import pem

from umbilical.cluster.client import ApiClient
from umbilical.cluster.csr import KIND, Round, approve_pending
from umbilical.cluster.csr_policy import CLIENT_SIGNER, ExpectedNode, Policy

real = pytest.mark.real(*PROGRAMS)


def policy(plane_user: str) -> Policy:
    """Requests are made as the administrator of the test, who stands in for the bootstrap user."""
    name = "node-a.example.com"
    groups = frozenset({"system:authenticated"})
    return Policy({name: ExpectedNode(name, frozenset({"192.0.2.1"}), datetime.now(UTC))}, plane_user, groups)


async def file_request(client: ApiClient, name: str, content: bytes) -> None:
    spec: dict[str, Any] = {
        "request": base64.b64encode(content).decode(),
        "signerName": CLIENT_SIGNER,
        "usages": ["digital signature", "client auth"],
    }
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": KIND.name, "metadata": {"name": name}, "spec": spec}
    await client.request("POST", KIND.path(), body=body)


@real
def test_only_what_the_policy_allows_is_approved_and_a_second_first_request_is_not(plane: ControlPlane) -> None:
    async def run(client: ApiClient) -> list[Round]:
        own, foreign = pem("system:node:node-a.example.com"), pem("system:node:intruder")
        await file_request(client, "first", own)
        await file_request(client, "foreign", foreign)
        rounds = [await approve_pending(client, policy("admin"), datetime.now(UTC))]
        await file_request(client, "second", own)
        return [*rounds, await approve_pending(client, policy("admin"), datetime.now(UTC))]

    first, second = on_plane(plane, run)
    assert [one.csr for one in first.approved] == ["first"]
    assert [(one.csr, one.reason) for one in first.refused] == [("foreign", "no node intruder is expected")]
    assert second.approved == ()
    assert {one.csr: one.reason for one in second.refused}[
        "second"
    ] == "node-a.example.com has got its first certificate already"
    shown = plane.kubectl("get", "csr", "first", "-o", "jsonpath={.status.conditions[*].reason}")
    assert shown == "HardwayApproved"
    assert plane.kubectl("get", "csr", "foreign", "-o", "jsonpath={.status.conditions}") == ""
