"""Kubelets' requests: those of expected nodes are approved; of all others the first rule that fails is told."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from tests.support.signing_requests import PUBLIC, csr, pem

from umbilical.cluster.csr_policy import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    Decision,
    ExpectedNode,
    Policy,
    World,
    approval,
    decide,
    is_pending,
)

NOW = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
STARTED = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
NAME = "master-0.ocp4.example.com"
POLICY = Policy(
    {NAME: ExpectedNode(NAME, frozenset({"192.0.2.1"}), STARTED, frozenset({"master-0"}))},
    "system:bootstrapper",
    frozenset({"system:bootstrappers", "system:authenticated"}),
)
NODE = {"metadata": {"name": NAME}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
CLIENT = ("digital signature", "client auth")
SERVER = ("digital signature", "server auth")
MADE = "2026-11-16T08:10:00Z"
OWN = f"system:node:{NAME}"
Case = tuple[dict[str, Any], Policy, World]


def client_csr(
    user: str = "system:bootstrapper", groups: Any = None, usages: Any = CLIENT, made: str = MADE, **names: Any
) -> dict[str, Any]:
    content = pem(**{"common_name": OWN, **names})
    return csr(
        "node-csr-x",
        content,
        CLIENT_SIGNER,
        user,
        groups or ["system:bootstrappers", "system:authenticated"],
        usages,
        made,
    )


def serving_csr(
    user: str = OWN, groups: Any = None, usages: Any = SERVER, made: str = MADE, **names: Any
) -> dict[str, Any]:
    content = pem(**{"common_name": OWN, "dns": [NAME], "addresses": ["192.0.2.1"], **names})
    return csr("csr-y", content, SERVING_SIGNER, user, groups or ["system:nodes", "system:authenticated"], usages, made)


def decided(request: dict[str, Any], policy: Policy = POLICY, **world: Any) -> Decision:
    return decide(request, policy, World(NOW, **world))


def test_the_first_client_certificate_of_an_expected_node_is_approved() -> None:
    decision = decided(client_csr())
    assert decision.is_approved
    assert decision.node == NAME
    assert "first client" in decision.reason


def test_a_serving_certificate_with_the_nodes_own_names_is_approved() -> None:
    assert decided(serving_csr(), nodes={NAME: NODE}).is_approved
    assert decided(serving_csr(dns=[NAME, "master-0"]), nodes={NAME: NODE}).is_approved


def test_key_encipherment_is_allowed_because_rsa_keys_ask_for_it() -> None:
    assert decided(client_csr(usages=(*CLIENT, "key encipherment"))).is_approved


def test_a_renewal_is_approved_long_after_the_boot_and_although_the_node_exists() -> None:
    late = client_csr(user=OWN, groups=["system:nodes", "system:authenticated"], made="2026-11-17T08:00:00Z")
    decision = decided(late, nodes={NAME: NODE}, approved_clients=[NAME])
    assert decision.is_approved
    assert "renewal" in decision.reason


def test_a_first_certificate_is_told_with_its_key_and_no_other_is() -> None:
    assert decided(client_csr()).first_key == hashlib.sha256(PUBLIC).hexdigest()
    assert decided(serving_csr(), nodes={NAME: NODE}).first_key == ""
    renewal = client_csr(user=OWN, groups=["system:nodes", "system:authenticated"])
    assert decided(renewal, nodes={NAME: NODE}).first_key == ""


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, Any], str]] = {
    "another signer": (
        lambda: {**client_csr(), "spec": {**client_csr()["spec"], "signerName": "example.com/x"}},
        {},
        "none of the kubelets'",
    ),
    "no base64": (lambda: {**client_csr(), "spec": {**client_csr()["spec"], "request": "%%"}}, {}, "not base64"),
    "no request": (lambda: {**client_csr(), "spec": {**client_csr()["spec"], "request": "QUJD"}}, {}, "no PEM"),
    "decided already": (
        lambda: {**client_csr(), "status": {"conditions": [{"type": "Denied"}]}},
        {},
        "decided about it already",
    ),
    "a flood": (client_csr, {"pending": 101}, "no boot"),
    "more groups": (lambda: client_csr(organizations=["system:nodes", "system:masters"]), {}, "exactly [system:nodes]"),
    "no node's name": (lambda: client_csr(common_name="system:admin"), {}, "is no node's"),
    "an unknown node": (lambda: client_csr(common_name="system:node:intruder"), {}, "no node intruder is expected"),
    "more usages": (lambda: client_csr(usages=(*CLIENT, "cert sign")), {}, "usages"),
    "another purpose": (lambda: client_csr(usages=SERVER), {}, "usages"),
    "a URI": (lambda: client_csr(others=[x509.UniformResourceIdentifier("spiffe://a")]), {}, "neither DNS nor IP"),
    "too early": (lambda: client_csr(made="2026-11-16T07:00:00Z"), {}, "outside of the node's boot"),
    "too late": (lambda: client_csr(made="2026-11-16T10:01:00Z"), {}, "outside of the node's boot"),
    "no time": (lambda: client_csr(made=""), {}, "outside of the node's boot"),
    "another requester": (
        lambda: client_csr(user="system:serviceaccount:a:b"),
        {},
        "only system:bootstrapper or the node itself",
    ),
    "a requester without its groups": (
        lambda: client_csr(groups=["system:authenticated"]),
        {},
        "lacks the groups ['system:bootstrappers']",
    ),
    "a renewal without its group": (
        lambda: client_csr(user=OWN, groups=["system:authenticated"]),
        {},
        "not in the group",
    ),
    "a client with names": (lambda: client_csr(dns=["kubernetes"]), {}, "needs no names"),
    "a second first": (client_csr, {"approved_clients": [NAME]}, "has got its first certificate"),
    "a node that exists": (client_csr, {"nodes": {NAME: NODE}}, "exists already"),
    "serving by another": (lambda: serving_csr(user="system:node:worker-0"), {"nodes": {NAME: NODE}}, "itself may"),
    "serving without group": (
        lambda: serving_csr(groups=["system:nodes"]),
        {"nodes": {NAME: NODE}},
        "system:authenticated",
    ),
    "serving without names": (lambda: serving_csr(dns=[], addresses=[]), {"nodes": {NAME: NODE}}, "needs a name"),
    "serving the API's name": (
        lambda: serving_csr(dns=["kubernetes.default.svc"]),
        {"nodes": {NAME: NODE}},
        "kubernetes.default.svc",
    ),
    "serving another address": (lambda: serving_csr(addresses=["192.0.2.9"]), {"nodes": {NAME: NODE}}, "192.0.2.9"),
    "serving a network": (
        lambda: serving_csr(addresses=["192.0.2.0/24"]),
        {"nodes": {NAME: NODE}},
        "neither DNS nor IP",
    ),
    "serving before the node": (serving_csr, {}, "no Node"),
    "serving for a moved node": (
        serving_csr,
        {"nodes": {NAME: {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.77"}]}}}},
        "192.0.2.77",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_breaks_one_rule_stays_pending_and_the_rule_is_told(name: str) -> None:
    make, world, reason = REFUSED[name]
    decision = decided(make(), **world)
    assert not decision.is_approved
    assert reason in decision.reason


def test_a_node_that_was_named_for_it_may_ask_for_its_first_certificate_again() -> None:
    policy = replace(POLICY, reissue=frozenset({NAME}))
    late = client_csr(made="2026-11-18T08:00:00Z")
    assert decided(late, policy, nodes={NAME: NODE}, approved_clients=[NAME]).is_approved


def test_the_window_is_the_policys() -> None:
    wide = replace(POLICY, window=timedelta(hours=9))
    assert decided(client_csr(made="2026-11-16T16:00:00Z"), wide).is_approved


def test_an_approval_adds_one_condition_and_keeps_the_rest() -> None:
    request = client_csr()
    body = approval(request, decided(request), NOW)
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Approved", "True", "HardwayApproved")
    assert condition["lastUpdateTime"] == "2026-11-16T08:30:00Z"
    assert body["spec"] == request["spec"]
    assert not is_pending(body)
    assert is_pending(request)
