"""Signing requests: read, judged and approved."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.test_objects import on_plane
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.signing_requests import PUBLIC, csr, pem

from umbilical.cluster.client import ApiClient
from umbilical.cluster.csr import (
    CLIENT_SIGNER,
    KIND,
    SERVING_SIGNER,
    ClusterState,
    CsrRound,
    Decision,
    ExpectedNode,
    Policy,
    approval,
    approve_pending,
    decide,
    is_pending,
)
from umbilical.cluster.csr_request import RequestError, read_request

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
    async def run(client: ApiClient) -> list[CsrRound]:
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
    reasons = {one.csr: one.reason for one in second.refused}
    assert reasons["second"] == "node-a.example.com has its first certificate already"
    shown = plane.kubectl("get", "csr", "first", "-o", "jsonpath={.status.conditions[*].reason}")
    assert shown == "HardwayApproved"
    assert plane.kubectl("get", "csr", "foreign", "-o", "jsonpath={.status.conditions}") == ""


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
HERE = {"nodes": {NAME: NODE}}


def client_csr(
    user: str = "system:bootstrapper", groups: Any = None, usages: Any = CLIENT, made: str = MADE, **names: Any
) -> dict[str, Any]:
    content = pem(**{"common_name": OWN, **names})
    groups = groups or ["system:bootstrappers", "system:authenticated"]
    return csr("node-csr-x", content, CLIENT_SIGNER, user, groups, usages, made)


def serving_csr(
    user: str = OWN, groups: Any = None, usages: Any = SERVER, made: str = MADE, **names: Any
) -> dict[str, Any]:
    content = pem(**{"common_name": OWN, "dns": [NAME], "addresses": ["192.0.2.1"], **names})
    return csr("csr-y", content, SERVING_SIGNER, user, groups or ["system:nodes", "system:authenticated"], usages, made)


def decided(request: dict[str, Any], policy: Policy = POLICY, **world: Any) -> Decision:
    return decide(request, policy, ClusterState(NOW, **world))


def test_first_and_serving_certificates_of_an_expected_node_are_approved() -> None:
    decision = decided(client_csr())
    assert decision.is_approved
    assert decision.node == NAME
    assert "first client" in decision.reason
    assert decided(serving_csr(), nodes={NAME: NODE}).is_approved
    assert decided(serving_csr(dns=[NAME, "master-0"]), nodes={NAME: NODE}).is_approved
    assert decided(client_csr(usages=(*CLIENT, "key encipherment"))).is_approved
    wide = replace(POLICY, window=timedelta(hours=9))
    assert decided(client_csr(made="2026-11-16T16:00:00Z"), wide).is_approved


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


AUTHENTICATED = ["system:authenticated"]
DENIED = {"status": {"conditions": [{"type": "Denied"}]}}
MOVED = {"nodes": {NAME: {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.77"}]}}}}


def changed(**spec: str) -> dict[str, Any]:
    made = client_csr()
    return {**made, "spec": {**made["spec"], **spec}}


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, Any], str]] = {
    "another signer": (lambda: changed(signerName="example.com/x"), {}, "not a signer for kubelets"),
    "no base64": (lambda: changed(request="%%"), {}, "not base64"),
    "no request": (lambda: changed(request="QUJD"), {}, "not PEM"),
    "decided already": (lambda: {**client_csr(), **DENIED}, {}, "already approved, denied or failed"),
    "a flood": (client_csr, {"pending": 101}, "more than the limit"),
    "more groups": (
        lambda: client_csr(organizations=["system:nodes", "system:masters"]),
        {},
        "expected [system:nodes]",
    ),
    "no node's name": (lambda: client_csr(common_name="system:admin"), {}, "does not begin with system:node:"),
    "an unknown node": (lambda: client_csr(common_name="system:node:intruder"), {}, "no node intruder is expected"),
    "more usages": (lambda: client_csr(usages=(*CLIENT, "cert sign")), {}, "usages"),
    "another purpose": (lambda: client_csr(usages=SERVER), {}, "usages"),
    "a URI": (lambda: client_csr(others=[x509.UniformResourceIdentifier("spiffe://a")]), {}, "neither DNS nor IP"),
    "too early": (lambda: client_csr(made="2026-11-16T07:00:00Z"), {}, "outside of the node's boot"),
    "too late": (lambda: client_csr(made="2026-11-16T10:01:00Z"), {}, "outside of the node's boot"),
    "no time": (lambda: client_csr(made=""), {}, "outside of the node's boot"),
    "another requester": (
        lambda: client_csr(user="system:other"),
        {},
        "expected system:bootstrapper or the node itself",
    ),
    "a requester without groups": (lambda: client_csr(groups=AUTHENTICATED), {}, "groups ['system:bootstrappers']"),
    "a renewal without its group": (lambda: client_csr(user=OWN, groups=AUTHENTICATED), {}, "not in the group"),
    "a client with names": (lambda: client_csr(dns=["kubernetes"]), {}, "must have no alternative names"),
    "a second first": (client_csr, {"approved_clients": [NAME]}, "has its first certificate"),
    "a node that exists": (client_csr, HERE, "exists already"),
    "serving by another": (
        lambda: serving_csr(user="system:node:worker-0"),
        HERE,
        "its requester is system:node:worker-0, expected system:node:",
    ),
    "serving without group": (lambda: serving_csr(groups=["system:nodes"]), HERE, "system:authenticated"),
    "serving without names": (lambda: serving_csr(dns=[], addresses=[]), HERE, "needs an alternative name"),
    "serving the API's name": (lambda: serving_csr(dns=["kubernetes.default.svc"]), HERE, "kubernetes.default.svc"),
    "serving another address": (lambda: serving_csr(addresses=["192.0.2.9"]), HERE, "192.0.2.9"),
    "serving a network": (lambda: serving_csr(addresses=["192.0.2.0/24"]), HERE, "neither DNS nor IP"),
    "serving before the node": (serving_csr, {}, "does not exist yet"),
    "serving for a moved node": (serving_csr, MOVED, "192.0.2.77"),
}


def test_a_request_that_breaks_one_rule_stays_pending_and_the_rule_is_told() -> None:
    for name, (make, world, reason) in REFUSED.items():
        decision = decided(make(), **world)
        assert not decision.is_approved, name
        assert reason in decision.reason


def test_a_node_that_was_named_for_it_may_ask_for_its_first_certificate_again() -> None:
    policy = replace(POLICY, reissue=frozenset({NAME}))
    late = client_csr(made="2026-11-18T08:00:00Z")
    assert decided(late, policy, nodes={NAME: NODE}, approved_clients=[NAME]).is_approved


def test_an_approval_adds_one_condition_and_keeps_the_rest() -> None:
    request = client_csr()
    body = approval(request, decided(request), NOW)
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Approved", "True", "HardwayApproved")
    assert condition["lastUpdateTime"] == "2026-11-16T08:30:00Z"
    assert body["spec"] == request["spec"]
    assert not is_pending(body)
    assert is_pending(request)


def test_names_groups_and_key_are_read_and_other_names_counted() -> None:
    request = read_request(pem(dns=["master-0"], addresses=["192.0.2.1", "2001:db8::1"]))
    assert request.common_name == "system:node:master-0"
    assert request.organizations == ("system:nodes",)
    assert request.dns_names == ("master-0",)
    assert [str(one) for one in request.ip_addresses] == ["192.0.2.1", "2001:db8::1"]
    assert request.other_names == 0
    assert request.public_key == PUBLIC
    uri = x509.UniformResourceIdentifier("spiffe://example")
    mail = x509.RFC822Name("a@example.com")
    assert read_request(pem(others=[uri, mail])).other_names == 2


def test_what_nobody_should_sign_is_refused() -> None:
    for content, why in (
        (b"", "not PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not PEM"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "malformed"),
        (pem() + pem(common_name="system:node:another"), "exactly one block"),
        (pem().replace(b"-----\n", b"-----\nA: b\n\n", 1), "exactly one block"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\n" + pem(), "exactly one block"),
        (pem(common_name=""), "0 common names"),
        (pem(key=rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (pem(key=ec.generate_private_key(ec.SECP256K1())), "neither RSA nor"),
    ):
        with pytest.raises(RequestError, match=why):
            read_request(content)


def test_a_request_with_a_key_of_another_kind_or_that_another_key_signed_is_refused() -> None:
    lines = pem().split(b"\n")
    der = bytearray(base64.b64decode(b"".join(lines[1:-2])))
    der[-1] ^= 1
    broken = b"-----BEGIN CERTIFICATE REQUEST-----\n%b\n-----END CERTIFICATE REQUEST-----\n" % base64.b64encode(der)
    with pytest.raises(RequestError, match=r"signature|read"):
        read_request(broken)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    content = builder.sign(ed25519.Ed25519PrivateKey.generate(), None).public_bytes(Encoding.PEM)
    with pytest.raises(RequestError, match="neither RSA nor"):
        read_request(content)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(content: bytes) -> None:
    with pytest.raises(RequestError):
        read_request(b"-----BEGIN CERTIFICATE REQUEST-----\n" + content)
