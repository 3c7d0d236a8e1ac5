"""Edits of a config as bytes: what they are about changes, every other byte stays, and all can be undone."""

import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.ignition.configs import SCRIPT, SCRIPT_PATH, config, configs, entry, formatted, gzipped_entry, written
from tests.support.ignition_validate import validate

from umbilical.fault import IgnitionError
from umbilical.ignition.config import faults
from umbilical.ignition.document import IgnitionDocument

NEW = SCRIPT + "echo 'né & more'\n".encode()
ADDED = [entry("/opt/one", b"1"), entry("/opt/two", b"2")]


def content_of(document: IgnitionDocument, path: str) -> bytes:
    file = document.config.file(path)
    assert file is not None
    return file.content()


IGNITION = '"ignition":{"version":"3.2.0"}'
SOURCE = '"source":"{source}"'
# Every spelling that an installer, a person or a tool may have chosen; the last {source} is where the content is.
SPELLINGS = {
    "one line": f'{{{IGNITION},"storage":{{"files":[{{"path":"/s","contents":{{{SOURCE}}}}}]}}}}',
    "files first": f'{{"storage":{{"files":[{{"contents":{{{SOURCE}}},"path":"/s"}}],"x":1}},{IGNITION}}}',
    "trailing line break": f'{{"storage":{{"files":[{{"contents":{{{SOURCE}}},"path":"/s"}}]}},{IGNITION}}}\n',
    "escapes": f'{{{IGNITION},"\\u0073torage":{{"\\u0026":"\\u0026<>","files":[{{"path":"\\/s",'
    '"contents":{"sourc\\u0065":"{source}"}}]}}',
    "not ASCII": f'{{"é":"😀",{IGNITION},"storage":{{"files":[{{"é":"ü","path":"/s",'
    f'"contents":{{"é":[],{SOURCE}}}}}]}}}}',
    "windows": f'{{\r\n "storage" :\t{{ "files" : [ {{\r\n "contents" : {{ {SOURCE} }} , "path" : "/s" }} ] }}'
    f" ,\r\n {IGNITION} }}\r\n",
    "empty objects": f'{{{IGNITION},"storage":{{"files":[{{"group":{{}},"path":"/s","contents":{{"verification":{{}},'
    f'{SOURCE}}},"user":{{}}}}]}},"passwd":{{}}}}',
    "decoys": f'{{{SOURCE},{IGNITION},"storage":{{"x":{{"files":[]}},"files":[{{"path":"/t","source":"/s"}},'
    f'{{"x":{{"path":"/s"}},"path":"/s","contents":{{"x":{{"source":"no"}},{SOURCE}}}}}]}}}}',
    "huge numbers": f'{{"x":{"9" * 50}e5,{IGNITION},"storage":{{"files":[{{"path":"/s","x":[1e400,{"8" * 50}],'
    f'"contents":{{{SOURCE}}}}}]}}}}',
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_only_the_source_changes(spelling: str) -> None:
    before, _, after = SPELLINGS[spelling].rpartition("{source}")
    document = IgnitionDocument((before + "data:text/plain;charset=utf-8;base64,YQ==" + after).encode())
    edited = document.with_content("/s", b"hi")
    assert edited.content == (before + "data:text/plain;charset=utf-8;base64,aGk=" + after).encode()
    assert content_of(edited, "/s") == b"hi"
    assert edited.with_content("/s", b"a").content == document.content


def test_a_document_does_not_change() -> None:
    document = IgnitionDocument(written(config(entry(SCRIPT_PATH, SCRIPT))))
    before = document.content
    document.with_content(SCRIPT_PATH, NEW)
    document.with_files(ADDED)
    assert document.content is before
    assert content_of(document, SCRIPT_PATH) == SCRIPT


def test_the_same_content_changes_nothing() -> None:
    loose = entry(SCRIPT_PATH, contents={"source": "data:,%61%20b"})
    document = IgnitionDocument(written(config(loose)))
    assert document.with_content(SCRIPT_PATH, b"a b") is document


def test_base64_keeps_its_media_type_and_percent_encoding_stays_percent_encoding() -> None:
    document = IgnitionDocument(
        written(config(entry("/a", contents={"source": "data:application/x-sh;a=b;base64,YQ=="})))
    )
    assert '"data:application/x-sh;a=b;base64,aGk="' in document.with_content("/a", b"hi").entry_text("/a")
    document = IgnitionDocument(written(config(entry("/a", contents={"source": "data:,a"}))))
    edited = document.with_content("/a", b'"a" & b\n')
    assert '"data:,%22a%22%20%26%20b%0A"' in edited.entry_text("/a")
    assert content_of(edited, "/a") == b'"a" & b\n'


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_gzip_stays_gzip_and_the_hash_follows(kind: str) -> None:
    document = IgnitionDocument(written(config(gzipped_entry(SCRIPT_PATH, SCRIPT, kind))))
    edited = document.with_content(SCRIPT_PATH, NEW)
    (file,) = edited.config.files
    assert (file.compression, file.content()) == ("gzip", NEW)
    assert file.hash == f"{kind}-{hashlib.new(kind, NEW).hexdigest()}"
    assert edited.with_content(SCRIPT_PATH, SCRIPT).content == document.content


def test_content_that_is_not_carried_whole_cannot_be_edited() -> None:
    for contents, why in (
        ({"source": "https://example.com/x"}, "fetched at boot (https:)"),
        ({"source": "s3://bucket/x"}, "fetched at boot (s3:)"),
        ({"verification": {}}, "no contents.source"),
        (None, "no contents.source"),
        ({"source": "data:;base64,!"}, "base64 is invalid"),
        ({"source": "data:,a", "verification": {"hash": f"sha256-{'0' * 64}"}}, "hash differs"),
    ):
        document = IgnitionDocument(written(config(entry("/a", contents=contents))))
        with pytest.raises(IgnitionError) as caught:
            document.with_content("/a", b"new")
        assert why in caught.value.why


@pytest.mark.parametrize("files", [[], [entry("/b")], [entry("/a"), entry("/a")]])
def test_a_path_must_be_there_once(files: list[dict[str, Any]]) -> None:
    document = IgnitionDocument(written(config(*files)))
    for edit in (
        lambda: document.with_content("/a", b""),
        lambda: document.entry_text("/a"),
        lambda: document.with_entry_text("/a", '{"path": "/a"}'),
        lambda: document.without_files(["/a"]),
    ):
        with pytest.raises(IgnitionError, match="UMB143 could not edit /a"):
            edit()


def test_a_key_that_stands_twice_on_the_way_is_refused() -> None:
    for text in (
        '{"storage": {}, "storage": {"files": [{"path": "/a"}]}, ',
        '{"storage": {"files": [], "files": [{"path": "/a"}]}, ',
        '{"storage": {"files": [{"path": "/a", "contents": {}, "contents": {"source": "data:,a"}}]}, ',
        '{"storage": {"files": [{"path": "/a", "contents": {"source": "data:,b", "source": "data:,a"}}]}, ',
    ):
        with pytest.raises(IgnitionError, match="is twice"):
            IgnitionDocument((text + IGNITION + "}").encode()).with_content("/a", b"new")


@pytest.mark.parametrize("storage", [None, {}, {"files": None}, {"files": {}}, []])
def test_without_a_list_of_files_there_is_nothing_to_append_to(storage: Any) -> None:
    document = IgnitionDocument(written({"ignition": {"version": "3.2.0"}, "storage": storage}))
    with pytest.raises(IgnitionError, match=r"could not edit storage\.files"):
        document.with_files(ADDED)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("files", [[], [entry("/b")], [entry("/b"), entry("/c")]])
def test_files_are_appended_behind_the_last_and_taken_out(files: list[dict[str, Any]], indent: int | None) -> None:
    document = IgnitionDocument(written(config(*files), indent=indent) + b"\n")
    added = document.with_files(ADDED)
    assert json.loads(added.content) == config(*files, *ADDED)
    assert added.without_files(["/opt/one", "/opt/two"]).content == document.content
    assert added.without_files(["/opt/two"]).without_files(["/opt/one"]).content == document.content
    assert faults(added.config) == []


def test_appending_nothing_changes_nothing() -> None:
    document = IgnitionDocument(written(config()))
    assert document.with_files([]) is document
    assert document.without_files([]).content == document.content


@pytest.mark.parametrize("paths", [["/b"], ["/c", "/c"], ["/b", "/c"]])
def test_a_path_is_not_added_twice(paths: list[str]) -> None:
    with pytest.raises(IgnitionError, match="two entries with this path"):
        IgnitionDocument(written(config(entry("/b")))).with_files([entry(path) for path in paths])


def test_the_text_of_an_entry_is_as_written_and_can_be_put_back_at_its_own_path_alone() -> None:
    odd = '{ "path" :"\\/a", "contents":{"source":"data:,%61"} }'
    document = IgnitionDocument(('{"ignition":{"version":"3.2.0"},"storage":{"files":[ ' + odd + " ]}}").encode())
    edited = document.with_content("/a", b"b")
    assert document.entry_text("/a") == odd
    assert edited.with_entry_text("/a", odd).content == document.content
    for text in ("", "[]", "{}", '{"path": "/b"}', '{"path": "/a"', '{"path": "/a", "x": "\ud800"}'):
        with pytest.raises(IgnitionError):
            IgnitionDocument(written(config(entry("/a")))).with_entry_text("/a", text)


@pytest.mark.real("ignition-validate")
def test_the_validator_takes_every_edit() -> None:
    document = IgnitionDocument(
        written(config(entry("/a"), gzipped_entry("/b", SCRIPT), entry("/c", contents={"source": "data:,a"})))
    )
    for path in ("/a", "/b", "/c"):
        document = document.with_content(path, NEW)
    document = document.with_files(ADDED)
    validate(document.content)
    validate(document.without_files(["/a", "/b", "/c", "/opt/one", "/opt/two"]).content)


NEW_PATHS = ["/new/é", '/new/"&\\']


def drawn_document(data: st.DataObject, min_files: int = 0) -> IgnitionDocument:
    return IgnitionDocument(data.draw(formatted(data.draw(configs(min_files)))))


def drawn_path(data: st.DataObject, document: IgnitionDocument) -> str:
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
        document = IgnitionDocument(mutated)
        added = document.with_files([entry(NEW_PATHS[0])])
        assert added.without_files(NEW_PATHS[:1]).content == mutated
        for file in document.config.files:
            document = document.with_content(file.path, b"new")
