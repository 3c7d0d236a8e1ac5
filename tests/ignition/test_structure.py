"""The laws of the format, judged by ourselves and by Ignition's own validator: both must say the same."""

from typing import Any

import pytest
from tests.ignition.configs import config, entry, written
from tests.support.ignition_validate import refusal_of, validate

from umbilical.ignition.config import faults, read_config

SHA256 = "sha256-" + "0" * 64


def source(text: str, **fields: Any) -> dict[str, Any]:
    return entry("/a", contents={"source": text} | fields)


def units(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"systemd": {"units": list(entries)}}


GOOD: dict[str, dict[str, Any]] = {
    "the least": {"ignition": {"version": "3.0.0"}},
    "as an installer writes": config(entry("/a"), entry("/b", mode=0o7777)),
    "empty objects": config(entry("/a", group={}, append=[]), passwd={}, systemd={}),
    "nulls": {"ignition": {"version": "3.2.0"}, "storage": {"files": None, "links": None}, "systemd": None},
    "append": config({"path": "/etc/motd", "overwrite": False, "append": [{"source": "data:,x"}]}),
    "percent": config(source("data:,a%20b")),
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
    "file beside a link": {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [entry("/lib64")], "links": [{"path": "/lib", "target": "/usr/lib"}]},
    },
}
BROKEN: dict[str, dict[str, Any]] = {
    "path twice": config(entry("/a"), entry("/a")),
    "path of file and directory": {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [entry("/a")], "directories": [{"path": "/a"}]},
    },
    "file below a link": {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [entry("/lib/a/b")], "links": [{"path": "/lib", "target": "/usr/lib"}]},
    },
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
    "mode of a directory": {
        "ignition": {"version": "3.2.0"},
        "storage": {"directories": [{"path": "/a", "mode": 5000}]},
    },
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
    "files as object": {"ignition": {"version": "3.2.0"}, "storage": {"files": {}}},
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


@pytest.mark.parametrize("name", GOOD)
def test_a_good_config_has_no_faults(name: str) -> None:
    assert faults(read_config(written(GOOD[name]))) == []


@pytest.mark.parametrize("name", [*BROKEN, *STRICTER])
def test_a_broken_config_has_a_fault(name: str) -> None:
    (fault, *_) = faults(read_config(written((BROKEN | STRICTER)[name])))
    assert "\n" not in fault


@pytest.mark.real("ignition-validate")
@pytest.mark.parametrize("name", [*GOOD, *STRICTER])
def test_the_validator_takes_what_has_no_fault(name: str) -> None:
    validate(written((GOOD | STRICTER)[name]))


@pytest.mark.real("ignition-validate")
@pytest.mark.parametrize("name", BROKEN)
def test_the_validator_refuses_what_has_a_fault(name: str) -> None:
    assert refusal_of(written(BROKEN[name])) is not None


@pytest.mark.real("ignition-validate")
@pytest.mark.parametrize("name", LAXER)
def test_what_only_the_validator_refuses_is_known(name: str) -> None:
    assert faults(read_config(written(LAXER[name]))) == []
    assert refusal_of(written(LAXER[name])) is not None


def test_a_fault_begins_with_its_place() -> None:
    value = config(entry("/a", mode=-1), {"mode": 1}, **units({"name": "a"}))
    assert [fault.partition(":")[0] for fault in faults(read_config(written(value)))] == ["/a", "storage.files[1]", "a"]


def test_a_path_of_very_many_parts_is_judged_at_once() -> None:
    value = config(entry("/a" * 200_000)) | {"x": 1}
    value["storage"]["links"] = [{"path": "/b", "target": "/c"}]
    assert faults(read_config(written(value))) == []
