"""Labels and selectors; the real API server, which filters by the same grammar, is the judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import run_async

from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.cluster.errors import ApiRefused
from umbilical.cluster.labels import (
    LabelError,
    Selector,
    SelectorError,
    format_labels,
    parse_labels,
    parse_selector,
)
from umbilical.cluster.leases import leases_path

real = pytest.mark.real(*PROGRAMS)
PATH = leases_path("default")
LABELLED: dict[str, dict[str, str]] = {
    "none": {},
    "a1": {"a": "1"},
    "a2": {"a": "2", "b": "x"},
    "empty": {"a": ""},
    "prefixed": {"k8s-app": "konnectivity-server", "example.com/role": "in", "in": "notin"},
}
GOOD_SELECTORS = [
    "",
    " ",
    "a",
    "!a",
    "a=1",
    "a == 1",
    "a!=1",
    "a=",
    "a!=",
    "a in (1,2)",
    "a in (1, 3 )",
    "a notin (1,2)",
    "a in ()",
    "a in (,1)",
    "a notin (,)",
    "a,b",
    "a,!b",
    "a!=1,b=x",
    "a>1",
    "a<2",
    "b>1",
    "k8s-app=konnectivity-server",
    "example.com/role in (in)",
    "example.com/role=in",
    "in in (notin)",
    "in",
    "\ta\t=\t1\t",
]
BAD_SELECTORS = [
    "*x*",
    ",",
    "a,",
    "a,,b",
    "a b",
    "a=1 2",
    "a=(1)",
    "=1",
    "(a)",
    "a in 1",
    "a in (1",
    "a in (1 2)",
    "!",
    "!!a",
    "!a=1",
    "a=*",
    "a>x",
    "a=" + "v" * 64,
    "a" * 64,
    "UPPER/a",
    "/a",
    "x/",
    "a/b/c",
    "*/*",
    "x" * 254 + "/a",
    "a ! b",
]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("k=v", {"k": "v"}),
        ("k=v,k2=v2", {"k": "v", "k2": "v2"}),
        (" k = v , k2 = ", {"k": "v", "k2": ""}),
        ("k=1,k=2", {"k": "2"}),
    ],
)
def test_labels_are_read_as_upstream_reads_them(text: str, labels: dict[str, str]) -> None:
    assert parse_labels(text) == labels


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty string provided"),
        ("x", "invalid label format: x"),
        ("k=v,x", "invalid label format: x"),
        ("a=b=c", "invalid label format: a=b=c"),
        ("k=v,", "invalid label format: "),
    ],
)
def test_bad_labels_are_refused_in_upstreams_words(text: str, fault: str) -> None:
    with pytest.raises(LabelError) as caught:
        parse_labels(text)
    assert str(caught.value) == fault


def test_labels_are_formatted_in_a_stable_order() -> None:
    assert format_labels({"b": "2", "a": "1"}) == "a=1,b=2"


def test_no_requirement_selects_everything() -> None:
    assert Selector().matches({})
    assert parse_selector("") == Selector()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a", {"a1", "a2", "empty"}),
        ("!a", {"none", "prefixed"}),
        ("a=1", {"a1"}),
        ("a!=1", {"none", "a2", "empty", "prefixed"}),
        ("a in (1,2)", {"a1", "a2"}),
        ("a notin (1,2)", {"none", "empty", "prefixed"}),
        ("a>1", {"a2"}),
        ("a<2", {"a1"}),
        ("a,b=x", {"a2"}),
    ],
)
def test_a_selector_takes_what_kubernetes_takes(selector: str, names: set[str]) -> None:
    parsed = parse_selector(selector)
    assert {name for name, labels in LABELLED.items() if parsed.matches(labels)} == names


@pytest.mark.parametrize("text", BAD_SELECTORS)
def test_a_bad_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(text)


@given(st.text(alphabet="ab1 =!<>(),*/\tin", max_size=24))
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    selector.matches({"a": "1"})


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.from_regex(r"[a-z0-9]{0,5}", fullmatch=True)))
def test_formatted_labels_select_their_own_bearer(labels: dict[str, str]) -> None:
    assert parse_selector(format_labels(labels)).matches({**labels, "other": "1"})


async def _listed(client: ApiClient, selector: str) -> set[str]:
    answer = await client.request("GET", PATH, query={"labelSelector": selector})
    return {item["metadata"]["name"] for item in answer["items"]}


def _lease(name: str, labels: dict[str, str]) -> Json:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


@real
def test_the_real_api_selects_the_same(plane: ControlPlane) -> None:
    async def scenario() -> None:
        async with make_client(plane.kubeconfig, qps=-1) as client:
            for name, labels in LABELLED.items():
                await client.request("POST", PATH, body=_lease(name, labels))
            for text in GOOD_SELECTORS:
                selector = parse_selector(text)
                ours = {name for name, labels in LABELLED.items() if selector.matches(labels)}
                assert await _listed(client, text) == ours, text
            for name in LABELLED:
                await client.request("DELETE", f"{PATH}/{name}")

    run_async(scenario())


@real
def test_the_real_api_refuses_the_same_in_the_same_words(plane: ControlPlane) -> None:
    async def scenario() -> dict[str, str]:
        words = {}
        async with make_client(plane.kubeconfig, qps=-1) as client:
            for text in BAD_SELECTORS:
                with pytest.raises(ApiRefused) as caught:
                    await _listed(client, text)
                words[text] = caught.value.message
        return words

    theirs = run_async(scenario())
    assert {text: _fault(text) for text in theirs} == theirs


def _fault(text: str) -> str:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    return str(caught.value)
