"""The stand-in for kube-apiserver: it reads the egress selector, asks a webhook over TLS, and reports as that does."""

import ipaddress
import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tls_listener
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority, Pair
from tests.support.webhook_listener import DENIAL, Answer, client_context, honest_answer, webhook_listener

from umbilical.bootstrap.render.kube_apiserver import egress_selector
from umbilical.bootstrap.spec import Mode, Shape, for_shape
from umbilical.fault import LabError
from umbilical.lab.admission_review import (
    MAX_ANSWER_BYTES,
    AdmissionVerdict,
    AnswerRefused,
    Unreachable,
    Webhook,
    review,
    review_of,
    summary,
    verdict_of,
)
from umbilical.lab.egress_selector import DIRECT, Egress, EgressProtocol, cluster_egress, dial_direct, dialling
from umbilical.lab.transcript import CallResult
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, server_profile

UID = "0e7a"
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "lab"},
    "data": {"k": "v"},
}


def review_answer(**response: Any) -> bytes:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": UID, **response}}
    return json.dumps(review).encode()


def test_the_question_names_the_object_as_kube_apiserver_does() -> None:
    request = review_of(CONFIG_MAP, UID)["request"]
    assert request["uid"] == UID
    assert request["operation"] == "CREATE"
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["namespace"], request["name"]) == ("lab", "a")
    assert request["object"] == CONFIG_MAP
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    resource = review_of(policy, UID)["request"]["resource"]
    assert resource == {"group": "networking.k8s.io", "version": "v1", "resource": "networkpolicies"}
    assert verdict_of(review_answer(allowed=True), UID) == (True, "")
    assert verdict_of(review_answer(allowed=False, status={"message": "no"}), UID) == (False, "no")


def test_what_is_no_answer_is_refused() -> None:
    for body, why in (
        (b"<html>", "not JSON"),
        (b"[]", "expected webhook response"),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', "expected webhook response"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "absent"),
        (review_answer(uid="other", allowed=True), "expected response.uid"),
        (review_answer(), "not a boolean"),
        (review_answer(allowed="true"), "not a boolean"),
    ):
        with pytest.raises(AnswerRefused, match=why):
            verdict_of(body, UID)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(st.binary(max_size=100) | _json.map(lambda value: json.dumps(value).encode()))
def test_no_body_passes_by_chance(body: bytes) -> None:
    with pytest.raises(AnswerRefused):
        verdict_of(body, UID)


@given(st.dictionaries(st.sampled_from(["uid", "allowed", "status"]), _json))
def test_an_answer_is_a_verdict_or_refused(response: dict[str, Any]) -> None:
    try:
        allowed, message = verdict_of(review_answer(**response), UID)
    except AnswerRefused:
        return
    assert allowed is response["allowed"]
    assert isinstance(message, str)


URL = "https://webhook.lab.svc:443/validate?timeout=5s"
FAILED = 'failed calling webhook "judge.lab.dev": failed to call webhook: '


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


@pytest.fixture
def pair(authority: FolderAuthority) -> Pair:
    return authority.serving("webhook", ["webhook.lab.svc"])


def hook(port: int, service: str = "webhook", seconds: float = 5.0) -> Webhook:
    return Webhook("judge.lab.dev", service, "lab", "/validate", f"127.0.0.1:{port}", timeout_seconds=seconds)


def ask(authority: FolderAuthority, webhook: Webhook, verdict: str = "allow") -> AdmissionVerdict:
    labels = {"verdict": verdict}
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "lab", "labels": labels}}
    return review(webhook, client_context(authority), value, dial_direct)


def test_a_webhook_is_asked_as_kube_apiserver_asks_it(authority: FolderAuthority, pair: Pair) -> None:
    with webhook_listener(authority, pair) as port:
        allowed, denied = ask(authority, hook(port)), ask(authority, hook(port), "deny")
    assert (allowed.call, allowed.message) == (CallResult.ALLOWED, "")
    assert denied.call is CallResult.DENIED
    assert denied.message == f'admission webhook "judge.lab.dev" denied the request: {DENIAL}'
    assert allowed.seconds > 0
    seen: list[dict[str, Any]] = []
    with webhook_listener(authority, pair, seen=seen) as port:
        ask(authority, hook(port))
    (request,) = seen
    assert request["path"] == "/validate?timeout=5s"
    assert request["host"] == "webhook.lab.svc:443"
    assert request["review"]["kind"] == "AdmissionReview"
    assert request["review"]["request"]["object"]["kind"] == "ConfigMap"


def test_a_webhook_that_cannot_be_reached_is_told_with_url_and_reason(authority: FolderAuthority, pair: Pair) -> None:
    def refused(address: str, seconds: float) -> socket.socket:
        raise Unreachable(f"dial tcp {address}: connect: network is unreachable")

    verdict = review(hook(8443), client_context(authority), {"kind": "ConfigMap"}, refused)
    assert verdict.call is CallResult.UNREACHABLE
    assert verdict.message == (f'{FAILED}Post "{URL}": dial tcp 127.0.0.1:8443: connect: network is unreachable')
    with webhook_listener(authority, pair) as port:
        verdict = ask(authority, hook(port, service="other"))
    assert verdict.call is CallResult.UNREACHABLE
    assert "x509: certificate is not valid for other.lab.svc" in verdict.message
    with socket.create_server(("127.0.0.1", 0)) as silent:
        verdict = ask(authority, hook(silent.getsockname()[1], seconds=0.3))
    assert verdict.call is CallResult.UNREACHABLE
    assert verdict.message.endswith(": context deadline exceeded")


def _says(status: int, body: bytes) -> Answer:
    return lambda review: (status, body)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_says(404, b"nothing here"), "could not find the requested resource"),
        (_says(500, b"boom"), 'an error on the server ("boom") has prevented the request from succeeding'),
        (_says(200, b"{}"), "expected webhook response of admission.k8s.io/v1"),
        (_says(200, b"x" * (MAX_ANSWER_BYTES + 1)), "more than"),
    ],
    ids=["not found", "error", "no review", "endless"],
)
def test_an_answer_that_is_none_is_told_as_kube_apiserver_tells_it(
    authority: FolderAuthority, pair: Pair, answer: Answer, words: str
) -> None:
    with webhook_listener(authority, pair, answer) as port:
        verdict = ask(authority, hook(port))

    assert verdict.call is CallResult.UNREACHABLE
    assert verdict.message.startswith(FAILED)
    assert words in verdict.message


def test_an_answer_to_another_question_counts_for_nothing(authority: FolderAuthority, pair: Pair) -> None:
    def liar(review: dict[str, Any]) -> tuple[int, bytes]:
        status, body = honest_answer(review)
        answer = json.loads(body)
        answer["response"]["uid"] = "another"
        return status, json.dumps(answer).encode()

    with webhook_listener(authority, pair, liar) as port:
        assert "expected response.uid" in ask(authority, hook(port)).message


def test_the_summary_says_for_whom_it_stands_and_counts_every_call() -> None:
    verdicts = [
        AdmissionVerdict(CallResult.UNREACHABLE, "no", 0.9),
        AdmissionVerdict(CallResult.ALLOWED, "", 0.1),
        AdmissionVerdict(CallResult.ALLOWED, "", 0.2),
    ]

    shown = summary(verdicts)
    assert shown["standsInFor"] == "kube-apiserver"
    assert (shown["call"], shown["seconds"]) == ("allowed", 0.2)
    assert shown["calls"] == {"unreachable": 1, "allowed": 2, "denied": 0}
    assert (shown["callSeconds"], shown["p50Seconds"]) == ([0.9, 0.1, 0.2], 0.2)


def told(port: int, context: ssl.SSLContext, service: str = "webhook") -> str:
    """What is said of a webhook whose handshake fails, without the words before it."""
    verdict = review(hook(port, service), context, {"kind": "ConfigMap"}, dial_direct)
    assert verdict.call is CallResult.UNREACHABLE
    return verdict.message.rpartition('timeout=5s": ')[2]


def test_a_wrong_certificate_is_refused_in_go_s_words(authority: FolderAuthority, pair: Pair, tmp_path: Path) -> None:
    stranger = FolderAuthority(tmp_path, "stranger")
    said = "tls: failed to verify certificate: x509: certificate"
    with tls_listener.listener(tls_listener.answers(authority.server_context(pair))) as port:
        assert told(port, stranger.client_context(None)) == f"{said} signed by unknown authority"
    with tls_listener.listener(tls_listener.answers(authority.server_context(pair))) as port:
        assert told(port, authority.client_context(None), "other") == f"{said} is not valid for other.lab.svc"


def test_a_certificate_of_yesterday_is_told_as_such(tmp_path: Path) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=2)
    authority = Authority.create("ca", yesterday, timedelta(days=10), KeyType.ECDSA_P256)
    profile = server_profile("webhook", ["webhook.lab.svc"], KeyType.ECDSA_P256)
    issued = authority.issue(profile, yesterday, timedelta(days=1))
    (tmp_path / "pair.pem").write_bytes(issued.certificate + issued.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "pair.pem")
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    with tls_listener.listener(tls_listener.answers(serving)) as port:
        assert told(port, context).endswith("x509: certificate has expired or is not yet valid")


def test_a_peer_without_tls_or_that_goes_away_is_told_as_such(authority: FolderAuthority, pair: Pair) -> None:
    with tls_listener.listener(tls_listener.plain_text) as port:
        assert told(port, authority.client_context(None)).startswith("tls: ")
    for leaves in (lambda client: None, lambda client: client.recv(4096)):
        with tls_listener.listener(leaves) as port:
            assert told(port, authority.client_context(None)) == "EOF"
    with tls_listener.listener(tls_listener.hangs_up(authority.server_context(pair))) as port:
        assert told(port, authority.client_context(None)) == "EOF"


def test_a_direct_dial_that_fails_is_told_in_go_s_words() -> None:
    closed = f"127.0.0.1:{free_port()}"
    for address, words in (
        (closed, f"dial tcp {closed}: connect: connection refused"),
        ("10.92.1.2", "missing port in address"),
        (f"{'x' * 70}.invalid:443", "no such host"),
    ):
        with pytest.raises(Unreachable) as caught:
            dial_direct(address, 5.0)
        assert str(caught.value).endswith(words)


@pytest.mark.parametrize("protocol", [EgressProtocol.GRPC, EgressProtocol.HTTP_CONNECT])
def test_a_tunnel_that_is_not_there_is_told_by_its_socket(protocol: EgressProtocol, tmp_path: Path) -> None:
    path = tmp_path / "none"
    with dialling(Egress(protocol, str(path))) as dial:
        with pytest.raises(Unreachable) as caught:
            dial("10.92.1.2:8443", 5.0)
        assert str(caught.value) == f"dial unix {path}: no such file or directory"
        with pytest.raises(Unreachable, match="missing port in address"):
            dial("10.92.1.2", 5.0)


def selector(**connection: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def read_selector(value: Any) -> Egress:
    return cluster_egress(yaml.safe_dump(value).encode(), "egress.yaml")


UDS = {"uds": {"udsName": "/run/server.socket"}}


@pytest.mark.parametrize("mode", list(Mode))
def test_what_umbilical_renders_leads_to_the_server_s_socket_in_its_protocol(mode: Mode) -> None:
    spec = for_shape(Shape.KUBERNETES, mode=mode, node_ip=ipaddress.ip_address("10.91.0.10"))

    egress = read_selector(egress_selector(spec))
    assert egress.protocol.value == mode.proxy_protocol
    assert egress.socket == spec.socket_in_kube_apiserver


def test_what_is_rendered_is_read_and_a_file_without_the_cluster_is_direct() -> None:
    value = selector()
    value["egressSelections"] = [{"name": "etcd", "connection": {"proxyProtocol": "Direct"}}]
    assert read_selector(value) == DIRECT
    assert read_selector(selector(proxyProtocol="GRPC", transport=UDS)) == Egress(
        EgressProtocol.GRPC, "/run/server.socket"
    )
    assert read_selector(selector(proxyProtocol="HTTPConnect", transport=UDS)).protocol is EgressProtocol.HTTP_CONNECT


def test_what_kube_apiserver_would_refuse_is_refused_with_the_reason() -> None:
    for value, why in (
        (None, "not a mapping"),
        ([], "not a mapping"),
        ({**selector(), "kind": "Egress"}, "not an EgressSelectorConfiguration"),
        ({**selector(), "apiVersion": "apiserver.k8s.io/v1"}, "not an EgressSelectorConfiguration"),
        ({**selector(), "egress": 1}, "unknown field 'egress'"),
        ({**selector(), "egressSelections": {}}, "not a list"),
        (selector(), "proxyProtocol of cluster is 'None'"),
        (selector(proxyProtocol="grpc", transport=UDS), "'grpc', not one of"),
        (selector(proxyProtocol="Direct", transport=UDS), "Direct and has a transport"),
        (selector(proxyProtocol="GRPC"), "not a mapping"),
        (selector(proxyProtocol="HTTPConnect", transport={"tcp": {"url": "https://x"}}), "not a Unix socket"),
        (selector(proxyProtocol="GRPC", transport={"uds": {"udsName": "relative"}}), "not an absolute path"),
        (selector(proxyProtocol="GRPC", transport={"uds": {"udsName": "/x", "mode": 1}}), "unknown field 'mode'"),
    ):
        with pytest.raises(LabError, match="UMB885") as caught:
            read_selector(value)
        assert "egress.yaml" in caught.value.what
        assert why in caught.value.why
    value = selector(proxyProtocol="GRPC", transport=UDS)
    value["egressSelections"] *= 2
    with pytest.raises(LabError, match="allowed, once each"):
        read_selector(value)
    with pytest.raises(LabError, match="more than"):
        cluster_egress(b"#" * (1 << 20) + b"#", "egress.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(LabError, match="UMB885"):
        cluster_egress(content, "egress.yaml")


_leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.sampled_from(["cluster", "GRPC", "/x"])
_keys = st.sampled_from(
    ["apiVersion", "kind", "egressSelections", "name", "connection", "proxyProtocol", "transport", "uds", "udsName"]
)


@given(st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3)))
def test_any_structure_below_is_read_or_refused(value: Any) -> None:
    document = {**selector(), "egressSelections": [{"name": "cluster", "connection": value}]}
    try:
        egress = read_selector(document)
    except LabError:
        return
    assert (egress.protocol is EgressProtocol.DIRECT) == (egress.socket == "")
