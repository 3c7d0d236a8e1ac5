"""A config as values: files with their decoded content, units, pointers, versions, faults."""

import hashlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ignition.configs import (
    JSON_VALUES,
    SCRIPT,
    SCRIPT_PATH,
    config,
    configs,
    entry,
    formatted,
    gzipped_entry,
    written,
)
from tests.support.ignition_validate import refusal_of

from umbilical.fault import IgnitionError
from umbilical.ignition.config import SUPPORTED_VERSIONS, Config, File, check_version, faults, read_config


def read(value: dict[str, Any]) -> Config:
    return read_config(written(value))


def only_file(**fields: Any) -> File:
    (file,) = read(config(entry(SCRIPT_PATH, **fields))).files
    return file


def test_a_file_s_fields_are_read_and_an_empty_object_and_null_are_absent() -> None:
    file = only_file(content=SCRIPT, mode=365, group={"name": "wheel"})
    assert (file.path, file.mode, file.user, file.group, file.overwrite) == (SCRIPT_PATH, 365, "root", "wheel", True)
    assert (file.compression, file.hash, file.text()) == ("", None, SCRIPT.decode())
    assert file.entry["path"] == SCRIPT_PATH
    file = only_file(contents={"verification": {}, "compression": None}, user={}, group=None, mode=None)
    assert [file.source, file.hash, file.user, file.group, file.mode] == [None] * 5
    assert file.compression == ""


def test_a_field_of_the_wrong_type_is_absent_and_a_fault() -> None:
    value = config(entry("/a", mode=True, user="root", contents=[], overwrite="yes"))
    (file,) = read(value).files
    assert (file.mode, file.user, file.source, file.overwrite) == (None, None, None, None)
    assert len(faults(read(value))) == 4


def test_a_hash_may_be_written_in_capitals() -> None:
    digest = hashlib.sha256(b"a").hexdigest().upper()
    assert only_file(contents={"source": "data:,a", "verification": {"hash": f"sha256-{digest}"}}).content() == b"a"


def test_content_that_cannot_be_had_is_told_with_the_path() -> None:
    for contents, why in (
        ({}, "no contents.source"),
        ({"source": ""}, "no contents.source"),
        ({"source": "https://example.com/x"}, "fetched at boot (https:)"),
        ({"source": "data:;base64,!"}, "base64 is invalid"),
        ({"source": "data:,a", "compression": "xz"}, "'xz' is unknown"),
        ({"source": "data:,a", "compression": "gzip"}, "gzip is broken"),
        ({"source": "data:,a", "verification": {"hash": f"sha256-{'0' * 64}"}}, "hash differs"),
        ({"source": "data:,a", "verification": {"hash": "md5-00"}}, "'md5' is unknown"),
    ):
        with pytest.raises(IgnitionError) as caught:
            only_file(contents=contents).content()
        assert caught.value.code == "UMB142"
        assert caught.value.what == f"could not read the content of {SCRIPT_PATH}"
        assert why in caught.value.why


def test_binary_content_has_no_text() -> None:
    assert only_file(content=b"\xff").content() == b"\xff"
    with pytest.raises(IgnitionError, match="not UTF-8 text"):
        only_file(content=b"\xff").text()


def test_units_and_their_drop_ins_are_read() -> None:
    unit = {
        "name": "a.service",
        "enabled": True,
        "contents": "[Unit]\n",
        "dropins": [{"name": "x.conf", "contents": "y"}],
    }
    found = read(config(systemd={"units": [unit, {"name": "b.service", "mask": True}]})).units
    assert [(each.name, each.contents, each.enabled, each.dropins, each.mask) for each in found] == [
        ("a.service", "[Unit]\n", True, {"x.conf": "y"}, None),
        ("b.service", None, None, {}, True),
    ]


def test_files_are_found_by_path() -> None:
    found = read(config(entry("/a", b"1"), entry("/b"), entry("/a", b"2")))
    first = found.file("/a")
    assert first is not None
    assert first.content() == b"1"
    assert [file.content() for file in found.files_at("/a")] == [b"1", b"2"]
    assert found.file("/c") is None


@pytest.mark.parametrize(
    ("ignition", "is_pointer"),
    [
        ({}, False),
        ({"config": {"replace": {"verification": {}}, "merge": []}}, False),
        ({"config": {"replace": {"source": None}, "merge": [{}]}}, False),
        ({"config": {"replace": {"source": "https://example.com/b.ign"}}}, True),
        ({"config": {"merge": [{"source": "data:,"}]}}, True),
    ],
)
def test_a_pointer_is_known_by_its_source(ignition: dict[str, Any], is_pointer: bool) -> None:
    assert read({"ignition": {"version": "3.2.0"} | ignition}).is_pointer is is_pointer


@pytest.mark.parametrize("value", [{}, {"ignition": None}, {"ignition": {}}, {"ignition": {"version": 3}}])
def test_an_object_without_a_version_is_no_config(value: dict[str, Any]) -> None:
    with pytest.raises(IgnitionError, match=r"no ignition\.version"):
        read(value)


def test_stable_versions_are_supported_and_another_is_refused_and_a_fault() -> None:
    for version in SUPPORTED_VERSIONS:
        check_version(read(config(version=version)))
    for version in ("2.2.0", "3.6.0", "3.6.0-experimental", "3.2.0-experimental", "3.2", "3.2.1", "4.0.0", ""):
        found = read(config(version=version))
        with pytest.raises(IgnitionError, match="UMB141"):
            check_version(found)
        assert faults(found) == [f"ignition.version: {version!r} is not supported"]


@given(configs(), st.data())
def test_formatting_changes_nothing_of_what_is_read(value: dict[str, Any], data: st.DataObject) -> None:
    assert read_config(data.draw(formatted(value))) == read(value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(IgnitionError):
        faults(read_config(content))


@given(configs(), st.data())
def test_a_mutated_config_is_read_or_refused(value: dict[str, Any], data: st.DataObject) -> None:
    content = written(value)
    start = data.draw(st.integers(0, len(content)))
    mutated = content[:start] + data.draw(st.binary(max_size=3)) + content[start + data.draw(st.integers(0, 3)) :]
    with suppress(IgnitionError):
        faults(read_config(mutated))


@given(
    st.dictionaries(
        st.sampled_from(["path", "mode", "user", "contents", "append", "overwrite", "name", "dropins"]), JSON_VALUES
    )
)
def test_fields_of_any_type_are_told_not_tripped_over(fields: dict[str, Any]) -> None:
    shapes: list[Any] = [[fields], [entry("/a") | fields], fields, [[fields], None], None]
    for shape in shapes:
        value = {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": shape, "links": shape},
            "systemd": {"units": shape},
        }
        assert all("\n" not in fault or "\n" in str(fields) for fault in faults(read(value)))


SHA256 = "sha256-" + "0" * 64


def source(text: str, **fields: Any) -> dict[str, Any]:
    return entry("/a", contents={"source": text} | fields)


def storage(**parts: Any) -> dict[str, Any]:
    return {"ignition": {"version": "3.2.0"}, "storage": parts}


def units(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"systemd": {"units": list(entries)}}


GOOD: dict[str, dict[str, Any]] = {
    "the least": {"ignition": {"version": "3.0.0"}},
    "as an installer writes": config(entry("/a"), entry("/b", mode=0o7777)),
    "empty objects": config(entry("/a", group={}, append=[]), passwd={}, systemd={}),
    "nulls": {"ignition": {"version": "3.2.0"}, "storage": {"files": None, "links": None}, "systemd": None},
    "append": config({"path": "/etc/motd", "overwrite": False, "append": [{"source": "data:,x"}]}),
    "percent": config(source("data:,a%20b")),
    "gzip with a hash": config(gzipped_entry("/a", SCRIPT, "sha256"), gzipped_entry("/b", SCRIPT, "sha512")),
    "no content": config({"path": "/a"}),
    "empty source": config({"path": "/a", "contents": {"source": ""}}),
    "owner by id": config(entry("/a", user={"id": 0}, group={"id": 0, "name": ""})),
    "remote": config(source("https://example.com/x"), version="3.4.0"),
    "arn": config(source("arn:aws:s3:::bucket/key"), version="3.4.0"),
    "capital scheme": config(source("HTTP://example.com/x")),
    "units": config(**units({"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]\n"}]})),
    "unit without contents beside its file": config(
        entry("/etc/systemd/system/a.service"), **units({"name": "a.service"})
    ),
    "unknown keys": config(entry("/a", future=1), future={}),
    "file beside a link": storage(files=[entry("/lib64")], links=[{"path": "/lib", "target": "/usr/lib"}]),
}
BROKEN: dict[str, dict[str, Any]] = {
    "path twice": config(entry("/a"), entry("/a")),
    "path of file and directory": storage(files=[entry("/a")], directories=[{"path": "/a"}]),
    "file below a link": storage(files=[entry("/lib/a/b")], links=[{"path": "/lib", "target": "/usr/lib"}]),
    "no path": config({"mode": 420}),
    "no object": config(None),  # type: ignore[arg-type]
    "relative": config(entry("a")),
    "dirty": config(entry("/a/../b")),
    "two slashes": config(entry("//a")),
    "trailing slash": config(entry("/a/")),
    "mode too large": config(entry("/a", mode=0o10000)),
    "negative mode": config(entry("/a", mode=-1)),
    "mode as text": config(entry("/a", mode="0600")),
    "mode as fraction": config(entry("/a", mode=420.5)),
    "mode of a directory": storage(directories=[{"path": "/a", "mode": 5000}]),
    "overwrite without source": config({"path": "/a", "overwrite": True, "contents": {"verification": {}}}),
    "overwrite as text": config(entry("/a", overwrite="true")),
    "user id and name": config(entry("/a", user={"id": 0, "name": "root"})),
    "group id and name": config(entry("/a", group={"id": 0, "name": "root"})),
    "user as text": config(entry("/a", user="root")),
    "user id too large": config(entry("/a", user={"id": 1 << 63})),
    "file of a unit": config(
        entry("/etc/systemd/system/a.service"), **units({"name": "a.service", "contents": "[Unit]\n"})
    ),
    "file of a drop-in": config(
        entry("/etc/systemd/system/a.service.d/b.conf"),
        **units({"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]\n"}]}),
    ),
    "unit twice": config(**units({"name": "a.service"}, {"name": "a.service"})),
    "unit of no kind": config(**units({"name": "a"})),
    "drop-in of no kind": config(**units({"name": "a.service", "dropins": [{"name": "b"}]})),
    "drop-in twice": config(**units({"name": "a.service", "dropins": [{"name": "b.conf"}, {"name": "b.conf"}]})),
    "enabled as text": config(**units({"name": "a.service", "enabled": "yes"})),
    "base64 broken": config(source("data:;base64,a")),
    "base64 with a line break": config(source("data:;base64,aGk=\n")),
    "percent broken": config(source("data:,%zz")),
    "space in a data URL": config(source("data:,a b")),
    "data without a comma": config(source("data:")),
    "media type": config(source("data:font/woff,a")),
    "capital data": config(source("DATA:,a")),
    "scheme": config(source("ftp://example.com/x")),
    "no scheme": config(source("example")),
    "gs before its version": config(source("gs://bucket/x"), version="3.1.0"),
    "arn before its version": config(source("arn:aws:s3:::bucket/key"), version="3.3.0"),
    "source as number": config(source(1)),  # type: ignore[arg-type]
    "broken append": config({"path": "/a", "append": [{"source": "data:"}]}),
    "append of no object": config({"path": "/a", "append": ["data:,"]}),
    "compression": config(source("data:,a", compression="xz")),
    "hash too short": config(source("data:,a", verification={"hash": "sha512-00"})),
    "hash of another kind": config(source("data:,a", verification={"hash": "md5-00"})),
    "hash without a kind": config(source("data:,a", verification={"hash": ""})),
    "sha256 before its version": config(source("data:,a", verification={"hash": SHA256}), version="3.0.0"),
    "hash without source": config({"path": "/a", "contents": {"verification": {"hash": SHA256}}}),
    "storage as list": {"ignition": {"version": "3.2.0"}, "storage": []},
    "files as object": storage(files={}),
    "version": config(version="3.2.1"),
}
# What we refuse and the validator lets pass: the first two fail at boot, the third may change until it is stable.
STRICTER: dict[str, dict[str, Any]] = {
    "hash of other content": config(source("data:,a", verification={"hash": SHA256})),
    "gzip that is none": config(source("data:,a", compression="gzip")),
    "experimental version": config(version="3.6.0-experimental"),
}
# What we let pass and the validator refuses: nothing of ours writes any of it.
LAXER: dict[str, dict[str, Any]] = {
    "inside of a unit": config(**units({"name": "a.service", "contents": "[Unit"})),
    "user twice": config(passwd={"users": [{"name": "core"}, {"name": "core"}]}),
    "file system": config() | {"storage": {"filesystems": [{"device": ""}]}},
    "remote address": config(source("https://exa mple.com")),
}


def found(values: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    return {name: faults(read_config(written(value))) for name, value in values.items()}


def test_a_good_config_has_no_faults_and_a_broken_one_has() -> None:
    assert {name: told for name, told in found(GOOD).items() if told} == {}
    assert [name for name, told in found(BROKEN | STRICTER).items() if not told or "\n" in told[0]] == []


@pytest.mark.real("ignition-validate")
def test_the_validator_takes_what_has_no_fault_and_refuses_what_has() -> None:
    taken = {name: refusal_of(written(value)) for name, value in (GOOD | STRICTER).items()}
    assert {name: refusal for name, refusal in taken.items() if refusal is not None} == {}
    assert [name for name, value in BROKEN.items() if refusal_of(written(value)) is None] == []


@pytest.mark.real("ignition-validate")
def test_what_only_the_validator_refuses_is_known() -> None:
    assert {name: told for name, told in found(LAXER).items() if told} == {}
    assert [name for name, value in LAXER.items() if refusal_of(written(value)) is None] == []


def test_a_fault_begins_with_its_place_and_a_path_of_very_many_parts_is_judged_at_once() -> None:
    value = config(entry("/a", mode=-1), {"mode": 1}, **units({"name": "a"}))
    assert [fault.partition(":")[0] for fault in faults(read_config(written(value)))] == ["/a", "storage.files[1]", "a"]
    value = config(entry("/a" * 200_000)) | {"x": 1}
    value["storage"]["links"] = [{"path": "/b", "target": "/c"}]
    assert faults(read_config(written(value))) == []
