"""YAML in files: many documents, bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.pods.documents import MAX_DEPTH, MAX_DOCUMENTS, read_documents
from umbilical.lab.pods.errors import PodError


def test_every_document_is_read_and_empty_ones_count_for_nothing() -> None:
    assert read_documents(b"---\na: 1\n---\n---\nb: 2\n", "file") == [{"a": 1}, {"b": 2}]


def test_json_is_read_as_well() -> None:
    assert read_documents(b'{"a": [1, "x"]}', "file") == [{"a": [1, "x"]}]


@pytest.mark.parametrize(
    "content",
    [
        b"a: *b",
        b"a: &b {c: *b}",
        b"[" * (MAX_DEPTH + 1),
        b"---\na: 1\n" * (MAX_DOCUMENTS + 1),
        b"- a\n",
        b"text",
        b"\xff\xfe\x00",
        b"a: !!timestamp nonsense",
        b"a: !!python/name:os.system",
    ],
)
def test_what_is_not_plain_objects_is_refused_with_the_files_name(content: bytes) -> None:
    with pytest.raises(PodError, match="UMB830 file"):
        read_documents(content, "file")


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_nothing_but_objects_or_one_kind_of_error_comes_out(content: bytes) -> None:
    try:
        documents = read_documents(content, "file")
    except PodError as error:
        outcome: object = error.code
    else:
        outcome = all(isinstance(document, dict) for document in documents)
    assert outcome in (True, "UMB830")
