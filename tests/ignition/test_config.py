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

from umbilical.ignition.config import SUPPORTED_VERSIONS, Config, File, check_version, faults, read_config
from umbilical.ignition.errors import IgnitionError


def read(value: dict[str, Any]) -> Config:
    return read_config(written(value))


def only_file(**fields: Any) -> File:
    (file,) = read(config(entry(SCRIPT_PATH, **fields))).files
    return file


def test_a_file_s_fields_are_read() -> None:
    file = only_file(content=SCRIPT, mode=365, group={"name": "wheel"})
    assert (file.path, file.mode, file.user, file.group, file.overwrite) == (SCRIPT_PATH, 365, "root", "wheel", True)
    assert (file.compression, file.hash, file.text()) == ("", None, SCRIPT.decode())
    assert file.entry["path"] == SCRIPT_PATH


def test_an_empty_object_and_null_are_absent() -> None:
    file = only_file(contents={"verification": {}, "compression": None}, user={}, group=None, mode=None)
    assert (file.source, file.compression, file.hash, file.user, file.group, file.mode) == (
        None,
        "",
        None,
        None,
        None,
        None,
    )


def test_a_field_of_the_wrong_type_is_absent_and_a_fault() -> None:
    value = config(entry("/a", mode=True, user="root", contents=[], overwrite="yes"))
    (file,) = read(value).files
    assert (file.mode, file.user, file.source, file.overwrite) == (None, None, None, None)
    assert len(faults(read(value))) == 4


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_a_compressed_file_with_a_hash_is_decoded(kind: str) -> None:
    (file,) = read(config(gzipped_entry(SCRIPT_PATH, SCRIPT, kind))).files
    assert file.content() == SCRIPT
    assert faults(read(config(gzipped_entry(SCRIPT_PATH, SCRIPT, kind)))) == []


def test_a_hash_may_be_written_in_capitals() -> None:
    digest = hashlib.sha256(b"a").hexdigest().upper()
    assert only_file(contents={"source": "data:,a", "verification": {"hash": f"sha256-{digest}"}}).content() == b"a"


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ({}, "no contents.source"),
        ({"source": ""}, "no contents.source"),
        ({"source": "https://example.com/x"}, "fetched at boot (https:)"),
        ({"source": "data:;base64,!"}, "base64 is broken"),
        ({"source": "data:,a", "compression": "xz"}, "'xz' is not known"),
        ({"source": "data:,a", "compression": "gzip"}, "gzip is broken"),
        ({"source": "data:,a", "verification": {"hash": f"sha256-{'0' * 64}"}}, "does not have the hash"),
        ({"source": "data:,a", "verification": {"hash": "md5-00"}}, "'md5' is not known"),
    ],
)
def test_content_that_cannot_be_had_is_told_with_the_path(contents: dict[str, Any], why: str) -> None:
    with pytest.raises(IgnitionError) as caught:
        only_file(contents=contents).content()
    assert caught.value.code == "UMB142"
    assert caught.value.what == f"the content of {SCRIPT_PATH} cannot be read"
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


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_a_stable_version_is_supported(version: str) -> None:
    check_version(read(config(version=version)))


@pytest.mark.parametrize(
    "version", ["2.2.0", "3.6.0", "3.6.0-experimental", "3.2.0-experimental", "3.2", "3.2.1", "4.0.0", ""]
)
def test_another_version_is_refused_and_a_fault(version: str) -> None:
    found = read(config(version=version))
    with pytest.raises(IgnitionError, match="UMB141"):
        check_version(found)
    assert faults(found) == [f"ignition.version: {version!r} is not supported"]


def test_a_hash_that_does_not_fit_is_a_fault() -> None:
    broken = gzipped_entry("/a", b"x") | {"path": "/b"}
    broken["contents"]["verification"]["hash"] = f"sha512-{'0' * 128}"
    (fault,) = faults(read(config(gzipped_entry("/a", b"x"), broken)))
    assert fault.startswith("/b: it does not have the hash")


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
