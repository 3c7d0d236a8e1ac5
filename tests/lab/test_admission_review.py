"""The question is a real AdmissionReview, and only a real answer to this very question counts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.admission_review import AnswerRefused, review_of, verdict_of

UID = "0e7a"
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "lab"},
    "data": {"k": "v"},
}


def answer(**response: Any) -> bytes:
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


def test_group_and_odd_plurals_are_right() -> None:
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    resource = review_of(policy, UID)["request"]["resource"]
    assert resource == {"group": "networking.k8s.io", "version": "v1", "resource": "networkpolicies"}


def test_the_webhook_s_own_words_come_back() -> None:
    assert verdict_of(answer(allowed=True), UID) == (True, "")
    assert verdict_of(answer(allowed=False, status={"message": "no"}), UID) == (False, "no")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "no JSON"),
        (b"[]", "expected webhook response"),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', "expected webhook response"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "absent"),
        (answer(uid="other", allowed=True), "expected response.uid"),
        (answer(), "no boolean"),
        (answer(allowed="true"), "no boolean"),
    ],
)
def test_what_is_no_answer_is_refused(body: bytes, why: str) -> None:
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
        allowed, message = verdict_of(answer(**response), UID)
    except AnswerRefused:
        return
    assert allowed is response["allowed"]
    assert isinstance(message, str)
