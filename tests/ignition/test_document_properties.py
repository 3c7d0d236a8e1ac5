"""Edits of any config in any formatting: what is not asked for stays, and what was done can be undone."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.ignition.configs import configs, entry, formatted

from umbilical.ignition.document import Document
from umbilical.ignition.errors import IgnitionError

NEW_PATHS = ["/new/é", '/new/"&\\']


def drawn_document(data: st.DataObject, min_files: int = 0) -> Document:
    return Document(data.draw(formatted(data.draw(configs(min_files)))))


def drawn_path(data: st.DataObject, document: Document) -> str:
    return data.draw(st.sampled_from([file.path for file in document.config.files]))


def without(value: dict[str, Any], path: str) -> dict[str, Any]:
    """Leave out what an edit of this file's content may change."""
    copied: dict[str, Any] = json.loads(json.dumps(value))
    for file in copied["storage"]["files"]:
        if file["path"] == path:
            del file["contents"]["source"], file["contents"]["verification"]
    return copied


@given(st.data())
def test_what_was_appended_can_be_taken_out_exactly(data: st.DataObject) -> None:
    document = drawn_document(data)
    added = document.with_files([entry(path, data.draw(st.binary())) for path in NEW_PATHS])
    assert [file.path for file in added.config.files[-2:]] == NEW_PATHS
    assert added.without_files(NEW_PATHS).content == document.content


@given(st.data(), st.binary(max_size=60))
def test_an_edit_changes_one_content_and_no_other_byte(data: st.DataObject, content: bytes) -> None:
    document = drawn_document(data, min_files=1)
    path = drawn_path(data, document)
    old = document.entry_text(path)
    edited = document.with_content(path, content)
    file = edited.config.file(path)
    assert file is not None
    assert file.content() == content
    assert without(edited.config.value, path) == without(document.config.value, path)
    before, _, after = document.content.partition(old.encode())
    assert edited.content == before + edited.entry_text(path).encode() + after


@given(st.data(), st.binary(max_size=60))
def test_an_edit_is_undone_by_putting_the_old_text_back(data: st.DataObject, content: bytes) -> None:
    document = drawn_document(data, min_files=1)
    path = drawn_path(data, document)
    edited = document.with_content(path, content).with_files([entry(NEW_PATHS[0])])
    undone = edited.without_files(NEW_PATHS[:1]).with_entry_text(path, document.entry_text(path))
    assert undone.content == document.content


@given(st.data())
def test_our_own_encoding_is_undone_by_the_old_content(data: st.DataObject) -> None:
    """All entries that are drawn were encoded by us, so that the old content gives the old bytes back."""
    document = drawn_document(data, min_files=1)
    file = data.draw(st.sampled_from(document.config.files))
    # Slashes that were written with a backslash are not written so again.
    assume(b"\\/" not in document.content and b"\\u0026" not in document.content)
    edited = document.with_content(file.path, file.content() + b"more")
    assert edited.with_content(file.path, file.content()).content == document.content


@given(st.data())
def test_files_can_be_taken_out_in_any_order(data: st.DataObject) -> None:
    document = drawn_document(data)
    paths = [file.path for file in document.config.files]
    removed = data.draw(st.lists(st.sampled_from(paths), unique=True)) if paths else []
    one_by_one = document
    for path in removed:
        one_by_one = one_by_one.without_files([path])
    at_once = document.without_files(removed)
    assert [file.path for file in at_once.config.files] == [path for path in paths if path not in removed]
    assert at_once.config == one_by_one.config


@given(st.data())
def test_a_mutated_document_is_edited_or_refused(data: st.DataObject) -> None:
    content = drawn_document(data, min_files=1).content
    start = data.draw(st.integers(0, len(content)))
    mutated = content[:start] + data.draw(st.binary(max_size=3)) + content[start + data.draw(st.integers(0, 3)) :]
    with suppress(IgnitionError):
        document = Document(mutated)
        added = document.with_files([entry(NEW_PATHS[0])])
        assert added.without_files(NEW_PATHS[:1]).content == mutated
        for file in document.config.files:
            document = document.with_content(file.path, b"new")
