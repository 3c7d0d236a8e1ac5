"""YAML and command lines of unknown origin: read strictly, and never a fault of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.verify.documents import (
    MAX_SHOWN,
    Pod,
    dig,
    is_placeholder,
    is_within,
    mappings,
    parse_flags,
    parse_yaml,
    seconds,
    shown,
    unexpected_keys,
)


def test_a_document_is_its_value() -> None:
    assert parse_yaml("a: [1, true, x]").value == {"a": [1, True, "x"]}


@pytest.mark.parametrize(
    "text",
    ["a: 1\na: 2", "{", "a: b: c", "--- 1\n--- 2", '!!int ""', "!!bool x", "!!python/none x", "[" * 5000, "0000-99-99"],
)
def test_what_kubernetes_would_not_read_is_a_fault_with_words(text: str) -> None:
    document = parse_yaml(text)
    assert document.value is None
    assert document.fault


def test_a_key_that_stands_twice_is_named_with_its_line() -> None:
    assert parse_yaml("x:\n  a: 1\n  a: 2\n").fault == "line 2: the key 'a' stands twice"


@given(st.text())
def test_any_text_gives_a_document(text: str) -> None:
    document = parse_yaml(text)
    assert document.value is None or document.fault is None


def test_digging_ends_where_something_else_is() -> None:
    value = {"a": [{"b": 1}]}
    assert dig(value, "a", 0, "b") == 1
    assert [dig(value, *keys) for keys in (("x",), ("a", 1), ("a", "b"), ("a", 0, "b", "c"), (0,))] == [None] * 5


def test_only_mappings_of_a_list_are_taken() -> None:
    assert mappings([{"a": 1}, 2, "x"]) == [{"a": 1}]
    assert mappings({"a": 1}) == mappings(None) == []


def test_a_tree_is_never_shown_whole() -> None:
    assert shown({"a": 1}) == "a mapping"
    assert shown([1]) == "a list"
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 9999)) < MAX_SHOWN + 5
    assert (shown(None), shown(True), shown(7)) == ("None", "True", "7")


def test_aliases_that_multiply_stay_small() -> None:
    levels = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 40))
    document = parse_yaml("l0: &l0 [x]\n" + levels)
    assert shown(document.value) == "a mapping"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", 5.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("", None),
        ("5", None),
        ("s", None),
        ("5s x", None),
    ],
)
def test_durations_are_gos(text: str, expected: float | None) -> None:
    assert seconds(text) == expected


def test_placeholders_are_whole_words() -> None:
    assert is_placeholder("${A_B}")
    assert [is_placeholder(text) for text in ("${A}x", "$A", "${}", "${1}", None, 7)] == [False] * 6


def test_a_path_is_within_its_directory_and_not_within_a_neighbour() -> None:
    assert is_within("/a/b", "/a")
    assert is_within("/a", "/a")
    assert is_within("/a/b", "/a/")
    assert not is_within("/ab", "/a")


def test_unexpected_keys_are_named() -> None:
    assert unexpected_keys({"a": 1, "b": 2, 3: 4}, ("a",)) == ["'b'", "3"]


def test_flags_are_read_from_command_and_arguments() -> None:
    flags = parse_flags({"command": ["/usr/bin/x", "--a=1"], "args": ["--b", "2", "--c=d=e"]})
    assert flags.program == "/usr/bin/x"
    assert flags.values == {"--a": "1", "--b": "2", "--c": "d=e"}
    assert flags.faults == []


def test_flags_that_stand_twice_or_are_none_are_faults() -> None:
    flags = parse_flags({"args": ["x", "--a=1", "--a=2", "-b", "word"]})
    assert flags.faults == ["--a stands twice", "'-b' is no flag", "'word' is no flag"]
    assert parse_flags({"args": ["x", 7]}).faults
    assert parse_flags({"args": "x"}).program == ""


@pytest.mark.parametrize(
    ("text", "expected"), [("8091", 8091), ("", None), ("-1", None), ("٣", None), ("9" * 20, None)]
)
def test_only_plain_digits_are_an_integer(text: str, expected: int | None) -> None:
    assert parse_flags({"args": ["x", f"--port={text}"]}).integer("--port") == expected


POD = Pod(
    {
        "containers": [
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/data"},
                    {"name": "w", "mountPath": "/data/inner", "readOnly": True},
                    {"name": "s", "mountPath": "/secret"},
                    {"name": "gone", "mountPath": "relative"},
                ]
            }
        ],
        "volumes": [
            {"name": "v", "hostPath": {"path": "/host", "type": "Directory"}},
            {"name": "w", "hostPath": {"path": "/other"}},
            {"name": "s", "secret": {"secretName": "certs"}},
        ],
    }
)


def test_the_longest_mount_holds_a_path() -> None:
    outer, inner = POD.mount_of("/data/x"), POD.mount_of("/data/inner/x")
    assert outer is not None
    assert inner is not None
    assert (outer.on_host("/data/x/y"), outer.is_read_only, outer.host_type) == ("/host/x/y", False, "Directory")
    assert (inner.on_host("/data/inner/x"), inner.is_read_only) == ("/other/x", True)
    assert POD.mount_of("/elsewhere") is None


def test_a_secret_has_no_place_on_the_host() -> None:
    mount = POD.mount_of("/secret/a")
    assert mount is not None
    assert (mount.secret_name, mount.on_host("/secret/a")) == ("certs", None)


@pytest.mark.parametrize("spec", [None, [], {}, {"containers": 7}, {"containers": [7]}, {"containers": [{"args": 1}]}])
def test_a_pod_of_nothing_has_nothing(spec: object) -> None:
    pod = Pod(spec)
    assert (pod.flags.values, pod.mounts, pod.mount_of("/x")) == ({}, [], None)
