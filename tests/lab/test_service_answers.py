"""What the lab's service says."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.admission_review import review_of, verdict_of
from umbilical.lab.objects import judged, letter
from umbilical.lab.service_answers import CONVERTED_BY, GREETED, BadQuestion, api_resource, convert, review

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["apiVersion", "kind", "request", "uid", "objects", "desiredAPIVersion", "object", "metadata"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def _conversion(*objects: object, to: str) -> dict[str, Any]:
    request = {"uid": "7", "desiredAPIVersion": f"post.umbilical.dev/{to}", "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def _v2(name: str, **spec: str) -> dict[str, Any]:
    return {**letter(name, ""), "apiVersion": "post.umbilical.dev/v2", "spec": spec}


@pytest.mark.parametrize(
    ("verdict", "expected"), [("allow", (True, "")), ("deny", (False, "the webhook in the cluster says no: worker-0"))]
)
def test_the_label_decides(verdict: str, expected: tuple[bool, str]) -> None:
    answer = review(review_of(judged(verdict), "42"), "worker-0")
    assert verdict_of(_encoded(answer), "42") == expected


def test_an_object_without_labels_is_allowed_and_so_is_a_deletion() -> None:
    question = review_of({"kind": "ConfigMap", "metadata": {"name": "a"}}, "1")
    assert review(question, "n")["response"] == {"uid": "1", "allowed": True}
    question["request"]["object"] = None
    assert review(question, "n")["response"]["allowed"] is True


def test_a_letter_is_one_text_in_v1_and_two_fields_in_v2() -> None:
    response = convert(_conversion(letter("a", "hello, world"), to="v2"), "worker-0")["response"]
    assert response["uid"] == "7"
    assert response["result"] == {"status": "Success"}
    [converted] = response["convertedObjects"]
    assert converted["apiVersion"] == "post.umbilical.dev/v2"
    assert converted["spec"] == {"greeting": "hello", "name": "world"}


def test_only_annotations_of_the_metadata_change() -> None:
    original = letter("a", "hello, world")
    original["metadata"] |= {"uid": "u", "resourceVersion": "9", "annotations": {"mine": "kept"}}
    before = copy.deepcopy(original)
    [converted] = convert(_conversion(original, to="v2"), "worker-0")["response"]["convertedObjects"]
    assert original == before
    assert converted["metadata"].pop("annotations") == {"mine": "kept", CONVERTED_BY: "worker-0"}
    before["metadata"].pop("annotations")
    assert converted["metadata"] == before["metadata"]


@given(st.text())
def test_nothing_is_lost_on_the_way_there_and_back(text: str) -> None:
    [there] = convert(_conversion(letter("a", text), to="v2"), "n")["response"]["convertedObjects"]
    [back] = convert(_conversion(there, to="v1"), "n")["response"]["convertedObjects"]
    assert back["spec"] == {"text": text}


@pytest.mark.parametrize(
    ("wanted", "to", "why"),
    [
        (letter("a", "b"), "v3", "to post.umbilical.dev/v3"),
        ({"apiVersion": "v1", "metadata": {}}, "v1", "no rule from v1"),
        ({"apiVersion": "post.umbilical.dev/v1"}, "v2", "without metadata"),
    ],
)
def test_what_has_no_rule_fails_by_name(wanted: dict[str, Any], to: str, why: str) -> None:
    response = convert(_conversion(_v2("ok", greeting="a"), wanted, to=to), "n")["response"]
    assert response["result"]["status"] == "Failure"
    assert why in response["result"]["message"]
    assert "convertedObjects" not in response


@given(JSON)
def test_nonsense_is_refused_in_one_way(body: object) -> None:
    for answer in (review, convert):
        with pytest.raises(BadQuestion):
            answer(body, "n")


@given(JSON)
def test_a_question_with_a_number_is_answered_whatever_is_in_it(inner: object) -> None:
    for kind, version, answer in (
        ("AdmissionReview", "admission.k8s.io/v1", review),
        ("ConversionReview", "apiextensions.k8s.io/v1", convert),
    ):
        request = {"uid": "7", "object": inner, "objects": [inner], "desiredAPIVersion": "post.umbilical.dev/v2"}
        result = answer({"apiVersion": version, "kind": kind, "request": request}, "n")
        assert result["response"]["uid"] == "7"


def test_discovery_leads_to_the_greetings() -> None:
    def ask(path: str) -> dict[str, Any]:
        found = api_resource(path, "worker-0", "admin")
        assert found is not None
        return found

    group = ask("/apis")["groups"][0]
    assert group == ask(f"/apis/{group['name']}")
    place = f"/apis/{group['preferredVersion']['groupVersion']}"
    [resource] = ask(place)["resources"]
    listed = ask(f"{place}/{resource['name']}")
    assert [one["metadata"]["name"] for one in listed["items"]] == list(GREETED)
    one = ask(f"{place}/{resource['name']}/moon")
    assert one["kind"] == resource["kind"]
    assert (one["text"], one["askedBy"]) == ("hello moon, says worker-0", "admin")


def test_kubectl_gets_a_table_when_it_asks_for_one() -> None:
    for name, rows in (("", len(GREETED)), ("/moon", 1)):
        found = api_resource(f"/apis/lab.umbilical.dev/v1/greetings{name}", "worker-0", "admin", TABLE)
        assert found is not None
        assert found["kind"] == "Table"
        assert len(found["rows"]) == rows
        assert {len(row["cells"]) for row in found["rows"]} == {len(found["columnDefinitions"])}


@pytest.mark.parametrize("path", ["/", "/openapi/v2", "/apis/other", "/apis/lab.umbilical.dev/v1/greetings/a/b"])
def test_elsewhere_is_nothing(path: str) -> None:
    assert api_resource(path, "n", "u") is None


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()
