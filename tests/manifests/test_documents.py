"""Trees of files, YAML documents, objects, and values that are read key by key."""

import base64
import ipaddress
from contextlib import suppress
from enum import Enum
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import json_values

from umbilical.fault import RenderError
from umbilical.manifests.objects import config_map, manifest, secret
from umbilical.manifests.sections import MAX_BYTES, MAX_DEPTH, DocumentError, YamlSection, read_document
from umbilical.manifests.tree import SECRET_MODE, AssetTree, yaml_bytes


def test_files_keep_their_order_are_secret_unless_said_and_none_is_overwritten_silently() -> None:
    tree = AssetTree()
    for path in ("/z", "/a", "/m"):
        tree.add(path, b"-----BEGIN PRIVATE KEY-----")
    assert [asset.path for asset in tree] == ["/z", "/a", "/m"]
    assert len(tree) == 3
    assert "/m" in tree
    assert tree["/a"].mode == SECRET_MODE
    assert "PRIVATE" not in repr(tree["/a"])
    with pytest.raises(RenderError, match="UMB111"):
        tree.add("/a", b"second")
    assert tree["/a"].content == b"-----BEGIN PRIVATE KEY-----"


def test_yaml_keeps_the_order_of_keys_sets_lists_in_and_has_neither_anchors_nor_broken_lines() -> None:
    pod = {"kind": "Pod", "apiVersion": "v1", "items": ["a"]}
    assert yaml_bytes(pod) == b"kind: Pod\napiVersion: v1\nitems:\n  - a\n"
    labels = {"app": "x"}
    assert b"&" not in yaml_bytes({"selector": labels, "template": labels})
    argument = "--agent-identifiers=" + "host=a b&" * 40
    assert yaml_bytes({"args": [argument]}).count(b"\n") == 2


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1), TREES, max_size=4))
def test_what_is_written_is_read_back(value: dict[str, object]) -> None:
    assert yaml.safe_load(yaml_bytes(value)) == value


def test_what_can_be_read_in_two_ways_or_without_end_is_refused() -> None:
    for content, why in (
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"a: 1\nb: 2\na: 3\n", "the key a twice"),
        (b"x: {a: 1, a: 2}\n", "the key a twice"),
        (b"a: 1\n---\nb: 2\n", "not one YAML document"),
        (b"a: [1\n", "not one YAML document: .*line 2"),
        (b"\xff\xfe\xfd", "not one YAML document"),
        (b"a: !!python/object:os.system x\n", "not one YAML document"),
        (b"[" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
        (b"#" * (MAX_BYTES + 1), "bytes"),
    ):
        with pytest.raises(DocumentError, match=why):
            read_document(content)


@given(json_values())
def test_whatever_yaml_writes_is_read_back(value: Any) -> None:
    assert read_document(yaml.safe_dump(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(DocumentError):
        read_document(content)


def test_a_secrets_values_are_encoded_a_config_maps_stay_text_and_parts_come_in_order() -> None:
    found = secret({"name": "a"}, {"tls.key": b"\x00key"})
    assert (found["kind"], found["type"]) == ("Secret", "Opaque")
    assert base64.b64decode(found["data"]["tls.key"]) == b"\x00key"
    assert secret({"name": "a"}, {}, "kubernetes.io/tls")["type"] == "kubernetes.io/tls"
    assert config_map({"name": "a"}, {"k": "v"})["data"] == {"k": "v"}
    assert list(manifest("v1", "Thing", {"name": "a"}, spec={})) == ["apiVersion", "kind", "metadata", "spec"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def section(value: object) -> YamlSection:
    return YamlSection(value, "", [])


def test_values_are_taken_by_their_kind() -> None:
    found = section(
        {"t": "a", "n": 3, "s": True, "c": "blue", "l": ["x", "y"], "w": ["10.0.0.0/8", "fd00::/8"], "a": ["10.0.0.1"]}
        | {"p": [1, 65535], "m": {"app": "x"}}
    )
    assert found.text("t") == "a"
    assert found.number("n", None, range(5)) == 3
    assert found.switch("s", default=False) is True
    assert found.choice("c", Colour.RED) is Colour.BLUE
    assert found.texts("l") == ("x", "y")
    assert [str(one) for one in found.networks("w")] == ["10.0.0.0/8", "fd00::/8"]
    assert found.addresses("a") == (ipaddress.ip_address("10.0.0.1"),)
    assert found.ports("p", (6443,)) == (1, 65535)
    assert found.labels("m", {}) == {"app": "x"}
    found.finish()
    assert found.problems == []


def test_what_is_not_there_has_its_default() -> None:
    found = section(None)
    assert found.text("t", "d") == "d"
    assert found.number("n", 2, range(5)) == 2
    assert found.switch("s", default=True) is True
    assert found.choice("c", Colour.RED) is Colour.RED
    assert found.texts("l", ("x",)) == ("x",)
    assert found.ports("p", (6443,)) == (6443,)
    assert found.labels("m", {"app": "x"}) == {"app": "x"}
    assert found.sections("x") == []
    assert found.problems == []


def test_what_must_be_there_is_missed() -> None:
    found = section({})
    found.text("t")
    found.number("n", None, range(1, 5))
    found.required_choice("c", Colour)
    assert found.problems == ["t is needed", "n is needed", "c is needed: red or blue"]


def test_a_wrong_value_is_shown_with_what_is_needed() -> None:
    for value, problem in (
        ({"text": 1}, "text 1: must be a string"),
        ({"number": True}, "number True: must be a number from 1 to 4"),
        ({"number": 5}, "number 5: must be a number from 1 to 4"),
        ({"number": "3"}, "number '3': must be a number"),
        ({"switch": "yes"}, "switch 'yes': must be true or false"),
        ({"choice": "green"}, "choice 'green': must be red or blue"),
        ({"choice": ["red"]}, "choice ['red']: must be red or blue"),
        ({"texts": "x"}, "texts 'x': must be a list"),
        ({"texts": ["x", 2]}, "texts[1] 2: must be a string"),
        ({"networks": ["10.0.0.1/8"]}, "networks[0] '10.0.0.1/8': must be a network"),
        ({"networks": [5]}, "networks[0] 5: must be a network"),
        ({"addresses": ["fe80::1%eth0"]}, "addresses[0] 'fe80::1%eth0': must be an IP address"),
        ({"ports": [0]}, "ports[0] 0: must be a port number"),
        ({"labels": {"a": 1}}, "labels {'a': 1}: must be a mapping of strings to strings"),
        ({"labels": {}}, "labels {}: must be a mapping of strings to strings"),
        ({"below": []}, "below is not a mapping"),
    ):
        found = section(value)
        _read_all(found)
        assert len(found.problems) == 1
        assert found.problems[0].startswith(problem)


def _read_all(found: YamlSection) -> None:
    found.text("text", "")
    found.number("number", 1, range(1, 5))
    found.switch("switch", default=True)
    found.choice("choice", Colour.RED)
    found.texts("texts")
    found.networks("networks")
    found.addresses("addresses")
    found.ports("ports", ())
    found.labels("labels", {})
    found.secret("secret", "[a-z]+", "letters are needed")
    found.section("below").finish()
    for one in found.sections("list"):
        one.finish()
    found.finish()


def test_an_unknown_key_is_refused_with_the_nearest_name_and_its_place() -> None:
    found = section({"numbr": 3, "zzz": 1})
    found.number("number", 1, range(5))
    found.finish()
    assert found.problems == ["numbr is unknown; did you mean number?", "zzz is unknown; known keys: number"]
    found = section({"list": [{"text": "a"}, {"text": 2, "txt": "b"}]})
    for one in found.sections("list"):
        one.text("text")
        one.finish()
    assert [problem.split()[0] for problem in found.problems] == ["list[1].text", "list[1].txt"]


def test_a_secret_is_never_repeated_and_a_long_value_is_cut() -> None:
    found = section({"url": "http://user:hunter2@proxy bad", "t": ["x" * 500]})
    found.secret("url", r"https?://\S+", "a URL is needed")
    assert found.problems == ["url: a URL is needed"]
    found.text("t")
    assert len(found.problems[1]) < 150


@given(json_values())
def test_any_value_is_read_to_the_end(value: Any) -> None:
    names = ("text", "number", "labels", "below", "list", "secret")
    for found in (section(value), section(dict.fromkeys(names, value))):
        _read_all(found)
        assert all(problem and len(problem) < 1000 for problem in found.problems)
    assert section(value).problems or value is None or isinstance(value, dict)


def test_one_network_and_one_address_are_taken_as_they_are_or_told() -> None:
    found = section({"w": "10.0.0.0/8", "a": "fd00::1"})
    assert found.network("w") == ipaddress.ip_network("10.0.0.0/8")
    assert found.address("a") == ipaddress.ip_address("fd00::1")
    assert found.network("none") is None
    assert found.problems == []
    found = section({"w": "10.0.0.1/8", "a": 5})
    assert (found.network("w"), found.address("a")) == (None, None)
    assert [problem.split(" ")[0] for problem in found.problems] == ["w", "a"]
