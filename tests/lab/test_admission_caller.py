"""The stand-in asks a webhook over TLS, and tells in kube-apiserver's words how that went."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.tunnel_pki import FolderAuthority, Pair
from tests.support.webhook_listener import DENIAL, Answer, client_context, honest_answer, webhook_listener

from umbilical.lab.admission_caller import MAX_ANSWER_BYTES, Unreachable, Verdict, Webhook, judge, summary
from umbilical.lab.story import Call
from umbilical.lab.tls_stream import Below
from umbilical.tunnel.blocking_dial import Deadline, dial_direct

URL = "https://webhook.lab.svc:443/validate?timeout=5s"
FAILED = 'failed calling webhook "judge.lab.dev": failed to call webhook: '


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


@pytest.fixture
def pair(authority: FolderAuthority) -> Pair:
    return authority.serving("webhook", ["webhook.lab.svc"])


def direct(address: str, seconds: float) -> Below:
    return dial_direct(address, Deadline(seconds))


def hook(port: int, service: str = "webhook", seconds: float = 5.0) -> Webhook:
    return Webhook("judge.lab.dev", service, "lab", "/validate", f"127.0.0.1:{port}", timeout_seconds=seconds)


def ask(authority: FolderAuthority, webhook: Webhook, verdict: str = "allow") -> Verdict:
    labels = {"verdict": verdict}
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "lab", "labels": labels}}
    return judge(webhook, client_context(authority), value, direct)


def test_a_webhook_allows_and_denies_by_its_own_word(authority: FolderAuthority, pair: Pair) -> None:
    with webhook_listener(authority, pair) as port:
        allowed, denied = ask(authority, hook(port)), ask(authority, hook(port), "deny")

    assert (allowed.call, allowed.message) == (Call.ALLOWED, "")
    assert denied.call is Call.DENIED
    assert denied.message == f'admission webhook "judge.lab.dev" denied the request: {DENIAL}'
    assert allowed.seconds > 0


def test_the_request_is_what_kube_apiserver_sends(authority: FolderAuthority, pair: Pair) -> None:
    seen: list[dict[str, Any]] = []
    with webhook_listener(authority, pair, seen=seen) as port:
        ask(authority, hook(port))

    (request,) = seen
    assert request["path"] == "/validate?timeout=5s"
    assert request["host"] == "webhook.lab.svc:443"
    assert request["review"]["kind"] == "AdmissionReview"
    assert request["review"]["request"]["object"]["kind"] == "ConfigMap"


def test_an_unreachable_webhook_is_told_with_url_and_reason(authority: FolderAuthority) -> None:
    def refused(address: str, seconds: float) -> Below:
        raise Unreachable(f"dial tcp {address}: connect: network is unreachable")

    verdict = judge(hook(8443), client_context(authority), {"kind": "ConfigMap"}, refused)
    assert verdict.call is Call.UNREACHABLE
    assert verdict.message == (f'{FAILED}Post "{URL}": dial tcp 127.0.0.1:8443: connect: network is unreachable')


def test_a_certificate_for_another_service_is_no_answer(authority: FolderAuthority, pair: Pair) -> None:
    with webhook_listener(authority, pair) as port:
        verdict = ask(authority, hook(port, service="other"))

    assert verdict.call is Call.UNREACHABLE
    assert "x509: certificate is not valid for other.lab.svc" in verdict.message


def test_a_webhook_that_never_answers_ends_with_the_timeout(authority: FolderAuthority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        verdict = ask(authority, hook(silent.getsockname()[1], seconds=0.3))

    assert verdict.call is Call.UNREACHABLE
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

    assert verdict.call is Call.UNREACHABLE
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
    verdicts = [Verdict(Call.UNREACHABLE, "no", 0.9), Verdict(Call.ALLOWED, "", 0.1), Verdict(Call.ALLOWED, "", 0.2)]

    shown = summary(verdicts)
    assert shown["standsInFor"] == "kube-apiserver"
    assert (shown["call"], shown["seconds"]) == ("allowed", 0.2)
    assert shown["calls"] == {"unreachable": 1, "allowed": 2, "denied": 0}
    assert (shown["callSeconds"], shown["p50Seconds"]) == ([0.9, 0.1, 0.2], 0.2)
