"""One YAML document, strictly."""

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import json_values

from umbilical.assets.documents import MAX_BYTES, MAX_DEPTH, DocumentError, read_document


def test_a_document_is_read_as_it_is() -> None:
    assert read_document(b"a: 1\nb: [x, {c: null}]\n") == {"a": 1, "b": ["x", {"c": None}]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"a: 1\nb: 2\na: 3\n", "the key a twice"),
        (b"x: {a: 1, a: 2}\n", "the key a twice"),
        (b"a: 1\n---\nb: 2\n", "not one YAML document"),
        (b"a: [1\n", "not one YAML document: .*line 2"),
        (b"\xff\xfe\xfd", "not one YAML document"),
        (b"a: !!python/object:os.system x\n", "not one YAML document"),
        (b"[" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
        (b"#" * (MAX_BYTES + 1), "bytes"),
    ],
)
def test_what_can_be_read_in_two_ways_or_without_end_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(DocumentError, match=why):
        read_document(content)


@given(json_values())
def test_whatever_yaml_writes_is_read_back(value: Any) -> None:
    assert read_document(yaml.safe_dump(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(DocumentError):
        read_document(content)
