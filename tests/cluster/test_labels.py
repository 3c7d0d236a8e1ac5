"""Label selectors, and the addresses that servers publish."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import run_async

from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.cluster.labels import LabelError, Selector, SelectorError, format_labels, parse_labels, parse_selector
from umbilical.cluster.leases import format_address, leases_path, parse_address
from umbilical.fault import ApiRefused

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
    *("", " ", "a", "!a", "a=1", "a == 1", "a!=1", "a=", "a!=", "a in (1,2)", "a in (1, 3 )", "a notin (1,2)"),
    *("a in ()", "a in (,1)", "a notin (,)", "a,b", "a,!b", "a!=1,b=x", "a>1", "a<2", "b>1"),
    *("k8s-app=konnectivity-server", "example.com/role in (in)", "example.com/role=in", "in in (notin)", "in"),
    "\ta\t=\t1\t",
]
BAD_SELECTORS = [
    *("*x*", ",", "a,", "a,,b", "a b", "a=1 2", "a=(1)", "=1", "(a)", "a in 1", "a in (1", "a in (1 2)", "!", "!!a"),
    *("!a=1", "a=*", "a>x", "a=" + "v" * 64, "a" * 64, "UPPER/a", "/a", "x/", "a/b/c", "*/*", "x" * 254 + "/a"),
    "a ! b",
]


def test_labels_are_read_as_upstream_reads_them_and_written_in_a_stable_order() -> None:
    for text, labels in (
        ("k=v", {"k": "v"}),
        ("k=v,k2=v2", {"k": "v", "k2": "v2"}),
        (" k = v , k2 = ", {"k": "v", "k2": ""}),
        ("k=1,k=2", {"k": "2"}),
    ):
        assert parse_labels(text) == labels
    assert format_labels({"b": "2", "a": "1"}) == "a=1,b=2"
    assert Selector().matches({})
    assert parse_selector("") == Selector()


def test_bad_labels_and_selectors_are_refused_labels_in_upstreams_words() -> None:
    for text, fault in (
        ("", "empty string provided"),
        ("x", "invalid label format: x"),
        ("k=v,x", "invalid label format: x"),
        ("a=b=c", "invalid label format: a=b=c"),
        ("k=v,", "invalid label format: "),
    ):
        with pytest.raises(LabelError) as caught:
            parse_labels(text)
        assert str(caught.value) == fault
    for text in BAD_SELECTORS:
        with pytest.raises(SelectorError):
            parse_selector(text)


def test_a_selector_takes_what_kubernetes_takes() -> None:
    for selector, names in (
        *(("a", {"a1", "a2", "empty"}), ("!a", {"none", "prefixed"}), ("a=1", {"a1"})),
        *(("a!=1", {"none", "a2", "empty", "prefixed"}), ("a in (1,2)", {"a1", "a2"})),
        *(("a notin (1,2)", {"none", "empty", "prefixed"}), ("a>1", {"a2"}), ("a<2", {"a1"}), ("a,b=x", {"a2"})),
    ):
        parsed = parse_selector(selector)
        assert {name for name, labels in LABELLED.items() if parsed.matches(labels)} == names


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
async def test_the_real_api_selects_the_same(plane: ControlPlane) -> None:
    async with make_client(plane.kubeconfig, qps=-1) as client:
        for name, labels in LABELLED.items():
            await client.request("POST", PATH, body=_lease(name, labels))
        for text in GOOD_SELECTORS:
            selector = parse_selector(text)
            ours = {name for name, labels in LABELLED.items() if selector.matches(labels)}
            assert await _listed(client, text) == ours, text
        for name in LABELLED:
            await client.request("DELETE", f"{PATH}/{name}")


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


_LABEL = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=1, max_size=20)
_HOSTS = st.one_of(st.lists(_LABEL, min_size=1, max_size=5).map(".".join), st.ip_addresses().map(str))


@given(_HOSTS, st.integers(1, 65535))
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    assert parse_address(format_address(host, port)) == (host, port)


@given(st.one_of(st.text(), st.binary(), st.none(), st.integers(), st.from_regex(r"\[?.{0,9}\]?:[0-9]{0,6}")))
def test_anything_else_is_an_address_or_nothing(text: object) -> None:
    found = parse_address(text)
    if found is not None:
        host, port = found
        assert host
        assert 0 < port <= 65535
        assert parse_address(format_address(host, port)) == found


def test_addresses_have_a_host_and_a_port() -> None:
    for text, address in (
        *(("10.0.0.9:8091", ("10.0.0.9", 8091)), ("server-1.example:1", ("server-1.example", 1))),
        *(("[fd00::7]:8091", ("fd00::7", 8091)), ("fd00::7:8091", None), ("10.0.0.9", None), ("10.0.0.9:", None)),
        *(("10.0.0.9:0", None), ("10.0.0.9:65536", None), ("10.0.0.9:8091 ", None), ("a/b:1", None)),
        *(("[10.example]:1", None), (":8091", None), ("a" * 400 + ":1", None), ("", None), (None, None)),
    ):
        assert parse_address(text) == address
    assert format_address(str(ipaddress.ip_address("fd00::7")), 1) == "[fd00::7]:1"
